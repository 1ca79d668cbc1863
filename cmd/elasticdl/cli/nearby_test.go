package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
)

// For a misspelled job of a cluster the most similar name of its namespace is suggested, and none
// if the cluster does not report its names.
func TestNearbyOnACluster(t *testing.T) {
	for _, c := range []struct {
		asked string
		names []string
		err   error
		want  string
	}{
		{"mnsit", []string{"cifar", "mnist"}, nil, "did you mean mnist? "},
		{"tiny-imgnet", []string{"tiny-imagenet"}, nil, "did you mean tiny-imagenet? "},
		{"mnsit", []string{"something-else"}, nil, ""},
		{"mnsit", nil, errors.New("forbidden"), ""},
	} {
		err := fmt.Errorf("asked: %w", &kube.Missing{Name: c.asked, Names: func(context.Context) ([]string, error) {
			return c.names, c.err
		}})
		if got := nearby(err); got != c.want {
			t.Errorf("%s among %v: %q, want %q", c.asked, c.names, got, c.want)
		}
	}
}
