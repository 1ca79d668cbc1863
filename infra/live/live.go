// Package live asks the API server of a cluster for single objects, as kubectl get does.
package live

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/elasticdl/elasticdl/infra"
)

// patience is the time limit of one request. The caller continues without an answer then.
const patience = 10 * time.Second

// most is the greatest size of an object in bytes: the API server accepts 1.5 MiB.
const most = 4 << 20

// Reader implements infra.Live by the API server that a kubeconfig names.
type Reader struct{}

// Get returns an object, or nil if the server has none of that name.
func (Reader) Get(ctx context.Context, kubeconfig, of string, kind schema.GroupVersionKind,
	namespace, name string) (map[string]any, error) {
	config, err := configOf(kubeconfig, of)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.Timeout = patience
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	where := pathOf(base, kind, namespace, name)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", kind.Kind, name, err)
	}
	request.Header.Set("Accept", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", kind.Kind, name, err)
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotFound:
		return nil, nil
	case http.StatusForbidden:
		return nil, fmt.Errorf("get %s %s: the API server says %s: %w", kind.Kind, name, answer.Status,
			infra.ErrForbidden)
	case http.StatusOK:
	default:
		return nil, fmt.Errorf("get %s %s: the API server says %s", kind.Kind, name, answer.Status)
	}
	var object map[string]any
	if err := json.NewDecoder(io.LimitReader(answer.Body, most)).Decode(&object); err != nil {
		return nil, fmt.Errorf("get %s %s: %w", kind.Kind, name, err)
	}
	return object, nil
}

// pathOf returns the URL of an object at the API server.
func pathOf(base *url.URL, kind schema.GroupVersionKind, namespace, name string) string {
	path := []string{"apis", kind.Group, kind.Version}
	if kind.Group == "" {
		path = []string{"api", kind.Version}
	}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return base.JoinPath(append(path, plural.Resource, name)...).String()
}
