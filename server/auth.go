package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
)

type contextKey int

const (
	peerKey contextKey = iota
	callerKey
)

// withPeer asks the kernel who is at the other end of a connection.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return ctx
	}
	var peer *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { peer, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil || asked != nil {
		return ctx // without a peer it is refused
	}
	return context.WithValue(ctx, peerKey, peer.Uid)
}

func callerOf(ctx context.Context) Caller {
	caller, _ := ctx.Value(callerKey).(Caller) // set by whoever let the request in
	return caller
}

func as(r *http.Request, caller Caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey, caller))
}

// bySocket lets in whom the kernel names.
func bySocket(names func(uint32) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid, known := r.Context().Value(peerKey).(uint32)
		if !known {
			writeProblem(w, http.StatusForbidden, api.CodeForbidden, "the kernel does not say who you are: call through the Unix socket on this machine")
			return
		}
		next.ServeHTTP(w, as(r, Caller{UID: uid, Name: names(uid)}))
	})
}

// byToken lets in who knows the token, as the user that the server runs as. It answers only to names of loopback: a web page whose
// name was made to point here carries its own.
func byToken(names func(uint32) string, token string, next http.Handler) http.Handler {
	owner := Caller{UID: uint32(os.Geteuid())}
	owner.Name = names(owner.UID)
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			writeProblem(w, http.StatusForbidden, api.CodeForbidden, fmt.Sprintf("the host %q is not this machine: call 127.0.0.1 or localhost", r.Host))
			return
		}
		scheme, given, ok := strings.Cut(r.Header.Get("Authorization"), " ")
		ok = ok && strings.EqualFold(scheme, "Bearer") // RFC 9110, 11.1: the scheme's case does not matter
		got := sha256.Sum256([]byte(given))
		if !ok || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="aliquot"`)
			writeProblem(w, http.StatusUnauthorized, "unauthorized", "the token is missing or wrong: send `Authorization: Bearer TOKEN` with the content of the token file in the server's state folder")
			return
		}
		next.ServeHTTP(w, as(r, owner))
	})
}

func isLoopback(hostport string) bool {
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

// loadToken reads the token, or makes one.
func loadToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err == nil {
		if token := strings.TrimSpace(string(data)); len(token) >= 32 {
			return token, nil
		}
		return "", fmt.Errorf("the token in %s is too short to keep anyone out: remove the file, and a new one is made", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails: it ends the program instead
	token := hex.EncodeToString(random)
	if err := os.WriteFile(path+".new", []byte(token+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return token, nil
}
