//go:build !e2e

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/elasticdl/elasticdl/test/provider"
)

// remoteURL is the name of the variable with the URL of the simulated clusters, for programs that
// the CLI runs: the clusters are in the process of the test.
const remoteURL = "ELASTICDL_TEST_OBJECTS"

// remote implements infra.Live by the simulated clusters at a URL.
type remote string

// question names an object, and answer has its value.
type (
	question struct {
		Kubeconfig, Context, Namespace, Name string
		Kind                                 schema.GroupVersionKind
	}
	answer struct {
		Object map[string]any
		Error  string
	}
)

// Get asks the test for an object.
func (url remote) Get(ctx context.Context, kubeconfig, of string, kind schema.GroupVersionKind,
	namespace, name string) (map[string]any, error) {
	body, err := json.Marshal(question{kubeconfig, of, namespace, name, kind})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, string(url), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var a answer
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		return nil, err
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return a.Object, nil
}

// serveObjects returns a handler that answers the requests of [remote].
func serveObjects(cloud *provider.Cloud) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var (
			q question
			a answer
		)
		err := json.NewDecoder(r.Body).Decode(&q)
		if err == nil {
			a.Object, err = cloud.Get(r.Context(), q.Kubeconfig, q.Context, q.Kind, q.Namespace, q.Name)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := json.NewEncoder(w).Encode(a); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}
