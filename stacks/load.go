package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// projectDirectory returns the directory of Pulumi.yaml, as the engine passes it. Older language
// hosts do not pass it: they run the program in its source directory, which is below that of
// Pulumi.yaml.
func projectDirectory(said string) (string, error) {
	dir, err := filepath.Abs(said)
	if said != "" || err != nil {
		return dir, err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "Pulumi.yaml")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return dir, nil
		}
	}
}

// load reads the configuration of a stack by [settings.Parse], and adds the name of the stack to
// its error. It logs the settings' notes as warnings. Dates in the settings are compared with now.
func load(ctx *pulumi.Context, now time.Time, others ...settings.Check) (*settings.Settings, error) {
	root, err := projectDirectory(ctx.RootDirectory())
	if err != nil {
		return nil, fmt.Errorf("find the project's directory: %w", err)
	}
	in := settings.Input{
		Project: ctx.Project(), Stack: ctx.Stack(), Root: root, Now: now, Arch: runtime.GOARCH,
		Config: map[string]string{},
		Stat: func(path string) (bool, error) {
			info, err := os.Stat(path)
			return err == nil && info.IsDir(), err
		},
	}
	// The SDK returns one key at a time, so a misspelt key would never be asked for. The
	// environment that the CLI sets has all keys.
	if all := os.Getenv(pulumi.EnvConfig); all != "" {
		if err := json.Unmarshal([]byte(all), &in.Config); err != nil {
			return nil, fmt.Errorf("read %s: %w", pulumi.EnvConfig, err)
		}
	}
	for _, key := range settings.Keys(in.Project) {
		if value, ok := ctx.GetConfig(key); ok {
			in.Config[key] = value
		}
		if ctx.IsConfigSecret(key) {
			in.Secret = append(in.Secret, key)
		}
	}
	s, err := settings.Parse(in, others...)
	// one line for each problem: the engine writes its own prefix before the first
	if err != nil {
		return nil, fmt.Errorf("the configuration of stack %s cannot be used:\n%w", in.Stack, err)
	}
	for _, note := range s.Notes {
		if err := ctx.Log.Warn(note, nil); err != nil {
			return nil, fmt.Errorf("log a warning: %w", err)
		}
	}
	return s, nil
}
