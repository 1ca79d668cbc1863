package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/elasticdl/elasticdl/trainer/source"
	"github.com/elasticdl/elasticdl/trainer/source/fetch"
)

// bringCode returns the command of a program that is on this machine: one that a URL names is fetched into the agent's directory.
func (a *agent) bringCode(ctx context.Context) ([]string, error) {
	g := a.Job.Program
	from, err := source.Parse(g.Command, g.SHA256)
	if err != nil {
		return nil, err
	}
	if from.Kind == source.Local && from.SHA256 == "" {
		return g.Command, nil
	}
	begun := time.Now()
	a.Log.Info("Fetching the program", "from", from)
	script, err := fetch.Fetch(ctx, from, filepath.Join(a.dir, "code"), fetch.Options{Open: a.Open})
	if err != nil {
		return nil, err
	}
	a.Log.Info("Fetched the program", "script", script, "duration", time.Since(begun).Round(time.Millisecond))
	return append([]string{script}, from.Args...), nil
}
