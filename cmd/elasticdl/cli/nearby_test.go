package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
)

// A misspelled job of a cluster is answered with the nearest name of its namespace, and with none
// if the cluster does not tell them.
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
