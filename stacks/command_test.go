//go:build !e2e

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
)

// command is the Pulumi CLI without the calls that the Automation API adds after each operation and
// that no test needs: for a stack's outputs, twice, and its history. Each call is a process, which
// takes as long as a small preview.
type command struct{ auto.PulumiCommand }

// installed returns the CLI on PATH, whose version is looked up once.
var installed = sync.OnceValues(func() (auto.PulumiCommand, error) { return auto.NewPulumiCommand(nil) })

func (c command) Run(ctx context.Context, dir string, in io.Reader, out, problems []io.Writer,
	env []string, args ...string) (string, string, int, error) {
	switch {
	case len(args) > 1 && slices.Equal(args[:2], []string{"stack", "output"}):
		return "{}", "", 0, nil
	case len(args) > 1 && slices.Equal(args[:2], []string{"stack", "history"}):
		return "[]", "", 0, nil
	}
	return c.PulumiCommand.Run(ctx, dir, in, out, problems, env, args...)
}

// keyService is the URL of the service that encrypts the key of a stack's secrets. With a
// passphrase each process would derive the key again, which takes a sixth of a second of CPU time.
const keyService = "hashivault://stacks"

// keep serves a key service until the test ends, and returns the environment of its clients. It
// only wraps the key: the CLI itself encrypts the secrets.
func keep(t *testing.T) map[string]string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const wrapped = "vault:v1:"
		var q struct{ Plaintext, Ciphertext string }
		err := json.NewDecoder(r.Body).Decode(&q)
		if err == nil {
			a := map[string]string{"ciphertext": wrapped + q.Plaintext}
			if strings.Contains(r.URL.Path, "/decrypt/") {
				a = map[string]string{"plaintext": strings.TrimPrefix(q.Ciphertext, wrapped)}
			}
			err = json.NewEncoder(w).Encode(map[string]any{"data": a})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	return map[string]string{"VAULT_SERVER_URL": server.URL, "VAULT_SERVER_TOKEN": "of a test"}
}
