package webhook

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/internal/point"
)

const (
	largest = 8 << 20          // bytes of a review: a pod has 1.5 MiB at most in etcd, and may come twice
	within  = 8 * time.Second  // for one answer; the API server waits 10 s
	drain   = 20 * time.Second // for answers that are under way when it ends
)

// Path is where reviews of pods are sent.
const Path = "/pods"

// Certificates is what a server shows who it is by.
type Certificates interface {
	Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// Serve answers the API server over TLS until ctx ends; then what is under way is answered, and nil returned.
func (w *Webhook) Serve(ctx context.Context, listener net.Listener, certificates Certificates) error {
	server := &http.Server{
		Handler:           w.handler(certificates),
		ReadHeaderTimeout: within, ReadTimeout: within, WriteTimeout: 2 * within, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificates.Certificate},
		ErrorLog:  slog.NewLogLogger(w.config.Log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := server.Shutdown(ctx)
	<-ended
	return err
}

func (w *Webhook) handler(certificates Certificates) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, w.review)
	mux.HandleFunc("GET /healthz", func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "ok") })
	mux.HandleFunc("GET /readyz", func(out http.ResponseWriter, _ *http.Request) {
		if _, err := certificates.Certificate(nil); err != nil {
			http.Error(out, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(out, "ok")
	})
	return mux
}

// review answers one AdmissionReview.
func (w *Webhook) review(out http.ResponseWriter, in *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(out, in.Body, largest))
	if err != nil {
		http.Error(out, fmt.Sprintf("read the review: %v", err), http.StatusBadRequest)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil || review.APIVersion != admissionv1.SchemeGroupVersion.String() {
		http.Error(out, fmt.Sprintf("this is no AdmissionReview of %s with a request (%v)", admissionv1.SchemeGroupVersion, err), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(in.Context(), within)
	defer cancel()
	answer := w.answer(ctx, review.Request)
	answer.UID = review.Request.UID
	point.Here("kube.admit.decided")
	text, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: answer})
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	if _, err := out.Write(text); err != nil {
		w.config.Log.Warn("an answer was not taken", "error", err)
	}
}

// answer is what is said to one request.
func (w *Webhook) answer(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	if request.Resource.Resource != "pods" || request.SubResource != "" || request.Operation != admissionv1.Create {
		return &admissionv1.AdmissionResponse{Allowed: true}
	}
	begun := time.Now()
	var pod corev1.Pod
	err := json.Unmarshal(request.Object.Raw, &pod)
	if err != nil {
		err = refuse(badPod, "the pod cannot be read: %v", err)
	}
	var made change
	if err == nil {
		made, err = w.decide(ctx, request.Namespace, &pod)
	}
	var operations []operation
	if err == nil {
		operations, err = made.patch(request.Object.Raw)
	}
	var why refusal
	name := pod.Name
	if name == "" {
		name = pod.GenerateName
	}
	switch {
	case errors.As(err, &why):
		w.config.Log.Info("refused", "namespace", request.Namespace, "pod", name, "why", why.text)
		w.metrics.took(refused, why.reason, begun)
		return denied(http.StatusForbidden, metav1.StatusReasonForbidden, why.text)
	case err != nil:
		w.config.Log.Warn("not known whether a pod may be", "namespace", request.Namespace, "pod", name, "error", err)
		w.metrics.took(failed, "", begun)
		return denied(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, fmt.Sprintf("whether the pod may have devices of Aliquot could not be found out: %v; try again", err))
	}
	answer := &admissionv1.AdmissionResponse{Allowed: true, Warnings: made.warnings}
	if len(operations) == 0 {
		w.metrics.took(asItIs, "", begun)
		return answer
	}
	if answer.Patch, err = json.Marshal(operations); err != nil {
		w.metrics.took(failed, "", begun)
		return denied(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
	}
	kind := admissionv1.PatchTypeJSONPatch
	answer.PatchType = &kind
	w.metrics.took(patched, "", begun)
	return answer
}

func denied(code int32, reason metav1.StatusReason, message string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}
