package testcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Create makes the objects of a YAML stream, in its order. Fields that the API server does not know are errors.
func (c *Cluster) Create(ctx context.Context, stream []byte) error {
	return c.each("create", stream, func(client dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		_, err := client.Create(ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		return err
	})
}

// Delete deletes the objects of a YAML stream, in its order, and does not wait until they are gone.
func (c *Cluster) Delete(ctx context.Context, stream []byte) error {
	return c.each("delete", stream, func(client dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		return client.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
	})
}

// each does something with each object of a YAML stream, in its order, by a client of its kind and namespace.
func (c *Cluster) each(what string, stream []byte, do func(dynamic.ResourceInterface, *unstructured.Unstructured) error) error {
	client, err := dynamic.NewForConfig(c.rest)
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(c.client.Discovery())
	if err != nil {
		return fmt.Errorf("ask which kinds of object there are: %w", err)
	}
	kinds := restmapper.NewDiscoveryRESTMapper(groups)
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096); ; {
		var object unstructured.Unstructured
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read objects: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		kind := object.GroupVersionKind()
		mapping, err := kinds.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("%s %s %s: %w", what, kind.Kind, object.GetName(), err)
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == "namespace" {
			namespace := object.GetNamespace()
			if namespace == "" {
				namespace = metav1.NamespaceDefault
			}
			resource = client.Resource(mapping.Resource).Namespace(namespace)
		}
		if err := do(resource, &object); err != nil {
			return fmt.Errorf("%s %s %s: %w", what, kind.Kind, object.GetName(), err)
		}
	}
}

// KubeconfigOf makes a kubeconfig for a service account, by a token that holds for a day. Where there is a node the token is bound to it, as
// one of a pod that runs there is.
func (c *Cluster) KubeconfigOf(ctx context.Context, namespace, account string) (string, error) {
	var bound *authenticationv1.BoundObjectReference
	if !c.control {
		node, err := c.client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("make a token of account %s: %w", account, err)
		}
		bound = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: NodeName, UID: node.UID}
	}
	day := int64(24 * 60 * 60)
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &day, BoundObjectRef: bound,
		}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("make a token of account %s: %w", account, err)
	}
	path := c.state.kubeconfig(strings.Join([]string{namespace, account}, "-"))
	return path, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: c.server(), CertificateAuthority: c.state.pki("ca.crt")}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{account: {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: account}},
		CurrentContext: "test",
	}, path)
}
