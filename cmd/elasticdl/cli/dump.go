package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/cmd/elasticdl/dump"
	"github.com/elasticdl/elasticdl/trainer/elastic/secret"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// Limits of the logs in a dump.
const (
	dumpMostMiB  = 512
	dumpLogsMiB  = 64 // default
	dumpLogLines = 20_000
)

func dumpCommand() *cobra.Command {
	var (
		format   format
		location location
		file     string
		mib      int64
	)
	cmd := &cobra.Command{
		Use:   "debug-dump JOB",
		Short: "Collect the evidence about a job in one archive, without secrets",
		Long: "Collect the evidence about a job in one archive, without secrets: its status, events, audit, lost " +
			"time, curves, stacks, the ends of all logs, its settings, and its objects or files.\n\n" +
			"Values of environment variables, and whatever looks like a secret, are replaced with [redacted]. " +
			"Names of hosts, users and paths stay. Secrets of Kubernetes are not read. The job may have " +
			"ended. If it runs, its stacks are taken as by elasticdl stacks. manifest.json, in the archive, lists its files and what could not be read.",
		Example: "  elasticdl debug-dump test-mnist\n  elasticdl debug-dump test-mnist " +
			"--file=mnist.tar.gz --log_mib=8",
		Args:              command.Words(1, 1),
		ValidArgsFunction: location.complete,
		PreRunE: checks(format.check, location.check, func(*cobra.Command, []string) error {
			if mib < 0 || mib > dumpMostMiB {
				return fmt.Errorf("--log_mib=%d: expected a number from 0, for no logs, to %d", mib, dumpMostMiB)
			}
			return nil
		}),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			home, err := location.find(cmd, args[0])
			if err != nil {
				return hint(err)
			}
			now := time.Now()
			file = cmp.Or(file, fmt.Sprintf("elasticdl-%s-%s.tar.gz", filepath.Base(args[0]),
				now.Format("20060102-150405")))
			if err := newFile(file); err != nil {
				return err
			}
			d := dumping{home: home, job: args[0], mib: mib, notes: notes{cmd.ErrOrStderr()}}
			found, err := d.read(cmd.Context(), now)
			if err != nil {
				return hint(err)
			}
			if err := found.Save(file); err != nil {
				return fmt.Errorf("--file=%s: %w", file, err)
			}
			if format.json() {
				return printJSON(cmd.OutOrStdout(), struct {
					File string `json:"file"`
					dump.Manifest
				}{file, found.Manifest})
			}
			_, err = io.WriteString(cmd.OutOrStdout(), dumpText(file, found.Manifest))
			return err
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "path of the archive, a new file; default: elasticdl-JOB-TIME.tar.gz "+
		"in the working directory")
	cmd.Flags().Int64Var(&mib, "log_mib", dumpLogsMiB, "most MiB of logs of all pods; longer ones lose their "+
		"first lines; 0 for no logs")
	format.flags(cmd)
	location.flags(cmd)
	return cmd
}

// newFile returns why a file could not be created.
func newFile(file string) error {
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("--file=%s: %w; expected the path of a new file", file, fs.ErrExist)
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return fmt.Errorf("--file=%s: expected a path in a directory that exists", file)
	}
	return nil
}

// dumping collects the evidence about a job.
type dumping struct {
	home  home
	job   string
	mib   int64 // most MiB of logs
	notes io.Writer
}

// Times that parts of a dump may take.
const (
	dumpSoon = 30 * time.Second
	dumpLate = 5 * time.Minute
)

// read reads a dump. It is an error if there is no such job, or the cluster does not answer.
func (d *dumping) read(ctx context.Context, now time.Time) (*dump.Dump, error) {
	if _, err := d.home.Status(ctx, d.job); missing(err) || errors.Is(err, kube.ErrUnreachable) {
		return nil, err
	}
	about := dump.Manifest{APIVersion: apiVersion, Job: d.job, Place: "this machine", Created: now.UTC(),
		Version: strings.TrimSpace(command.VersionText())}
	parts := []dump.Part{
		{Name: "status", Limit: dumpSoon, Read: d.status},
		{Name: "events", Limit: dumpSoon, Read: d.events},
		{Name: "audit", Limit: dumpSoon, Read: d.audit},
		{Name: "curves", Limit: dumpSoon, Read: d.curves},
		{Name: "stacks", Limit: dumpSoon, Read: d.stacks},
		{Name: "objects", Limit: dumpLate, Read: d.evidence},
	}
	client, ofCluster := d.home.(*kube.Client)
	if ofCluster {
		about.Place = "namespace " + client.Namespace()
	}
	if d.mib > 0 {
		parts = append(parts, dump.Part{Name: "logs", Limit: dumpLate, Read: d.logs("logs",
			role.LogOptions{Tail: dumpLogLines})})
		if ofCluster {
			parts = append(parts, dump.Part{Name: "logs of earlier starts", Limit: dumpLate,
				Read: d.logs("logs/previous", role.LogOptions{Tail: dumpLogLines, Previous: true})})
		}
	}
	known := make(map[string]string)
	// its processes have inherited the environment of a command such as this one
	if !ofCluster {
		known = inherited(os.Environ())
	}
	return dump.Read(ctx, about, parts, known, func(step string) { fmt.Fprintf(d.notes, "debug-dump: %s\n", step) })
}

// inherited returns the variables of an environment whose names are those of secrets.
func inherited(environ []string) map[string]string {
	all := make(map[string]string)
	for _, variable := range environ {
		if name, value, _ := strings.Cut(variable, "="); secret.Looks(name, value) != "" {
			all[name] = value
		}
	}
	return all
}

// Each of these reads one part of a dump.

func (d *dumping) status(ctx context.Context) ([]dump.File, error) {
	s, err := d.home.Status(ctx, d.job)
	if err != nil {
		return nil, err
	}
	files := []dump.File{
		{Name: "status.json", Value: json.RawMessage(statusJSON(s))},
		{Name: "status.txt", Text: []byte(statusText(s, time.Now()))},
	}
	if s.Accounting == nil {
		return append(files, dump.File{Name: "why.txt",
			Why: errors.New("the job has no account of its workers' time")}), nil
	}
	return append(files, dump.File{Name: "why.txt", Text: []byte(whyText(s.Accounting))}), nil
}

func (d *dumping) events(ctx context.Context) ([]dump.File, error) {
	all, err := d.home.Journal(ctx, d.job)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	p := eventPrinter{out: &text}
	if err := p.print(all.Entries); err != nil {
		return nil, err
	}
	return []dump.File{{Name: "journal.json", Value: all}, {Name: "events.txt", Text: []byte(text.String())}}, nil
}

func (d *dumping) audit(ctx context.Context) ([]dump.File, error) {
	a, err := auditOf(ctx, d.home, d.job)
	if err != nil {
		return nil, err
	}
	return []dump.File{{Name: "audit.json", Value: a}, {Name: "audit.txt", Text: []byte(a.text())}}, nil
}

func (d *dumping) curves(ctx context.Context) ([]dump.File, error) {
	v, err := d.home.View(ctx, d.job)
	if err != nil {
		return nil, err
	}
	return []dump.File{{Name: "curves.json", Value: v.Curve}}, nil
}

func (d *dumping) stacks(ctx context.Context) ([]dump.File, error) {
	reply, err := d.home.Stacks(ctx, d.job)
	if err != nil {
		return nil, err
	}
	return []dump.File{{Name: "stacks.txt", Text: []byte(stacksText(reply, true))}}, nil
}

func (d *dumping) evidence(ctx context.Context) ([]dump.File, error) {
	all, err := d.home.Evidence(ctx, d.job)
	var files []dump.File
	for _, e := range all {
		files = append(files, dump.File{Name: e.Name, Value: e.Value, Why: e.Why})
	}
	return files, err
}

// logs returns what reads logs into a directory of the dump.
func (d *dumping) logs(directory string, o role.LogOptions) func(context.Context) ([]dump.File, error) {
	return func(ctx context.Context) ([]dump.File, error) {
		l := &dump.Logs{Most: d.mib << 20}
		err := d.home.Logs(ctx, d.job, o, &counted{to: l, notes: d.notes, said: time.Now()})
		if o.Previous && errors.Is(err, role.ErrNoLog) {
			err = nil // no container was started again
		}
		return l.Files(directory), err
	}
}

// counted is a writer that notes from time to time how much was written.
type counted struct {
	to    io.Writer
	notes io.Writer
	said  time.Time
	bytes int64
}

func (c *counted) Write(text []byte) (int, error) {
	c.bytes += int64(len(text))
	if now := time.Now(); now.Sub(c.said) >= lineEvery {
		c.said = now
		fmt.Fprintf(c.notes, "debug-dump: %s of logs were read\n", bytesText(c.bytes))
	}
	return c.to.Write(text)
}

// dumpText returns the output of `elasticdl debug-dump`.
func dumpText(file string, m dump.Manifest) string {
	var all int64
	for _, f := range m.Files {
		all += f.Bytes
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d files, %s\n", file, len(m.Files), bytesText(all))
	for _, missing := range m.Missing {
		fmt.Fprintf(&b, "  not in it  %s: %s\n", oneLine(missing.Name), oneLine(missing.Why))
	}
	removed := 0
	for _, n := range m.Redacted {
		removed += n
	}
	if removed > 0 {
		names := slices.Sorted(maps.Keys(m.Redacted))
		fmt.Fprintf(&b, "  redacted   %s values: %s\n", logline.Thousands(int64(removed)),
			oneLine(strings.Join(names, ", ")))
	}
	b.WriteString("  Read it before you send it: it has names of hosts and users, paths, and log lines.\n")
	return b.String()
}
