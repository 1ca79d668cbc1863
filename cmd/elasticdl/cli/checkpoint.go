package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/store/bucket"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

func checkpointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "List, show, check and export the checkpoints of a job",
		Long: `List, show, check and export the checkpoints of a job.

DIR is the --checkpoint_dir of a job: a path, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX. A name
without a slash also names a job of this machine that has no --checkpoint_dir.

A commit is the model at one version, with the optimizer's slots and the list of the records in
it. A complete commit has a commit.json, the file that is written last.`,
		Example: "  elasticdl checkpoint ls ckpt\n" +
			"  elasticdl checkpoint inspect ckpt 42\n" +
			"  elasticdl checkpoint verify ckpt\n" +
			"  elasticdl checkpoint export ckpt model --number=42",
		Args: subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(checkpointListCommand(), checkpointInspectCommand(), checkpointVerifyCommand(),
		checkpointExportCommand())
	return cmd
}

// commits holds the directory, and the commits in it, that a command's arguments name.
type commits struct {
	location string
	// location without the parameters for an object store's client
	name string
	// commits that are named; empty: all
	named  []checkpoint.Name
	format format
}

// anyNumber allows any number of commits.
const anyNumber = math.MaxInt32

// parse parses the arguments: DIR, and at most most numbers.
func (c *commits) parse(cmd *cobra.Command, args []string, most int) error {
	var problems []error
	if len(args) == 0 || args[0] == "" {
		return fmt.Errorf("DIR is missing: expected the directory of a job's commits, as: %s ckpt", cmd.CommandPath())
	}
	c.location, c.named = args[0], nil
	if c.name = c.location; strings.Contains(c.name, "://") {
		c.name, _, _ = strings.Cut(c.name, "?")
	}
	if _, err := checkpoint.ParseLocation(c.location); err != nil {
		problems = append(problems, fmt.Errorf("DIR=%w", err))
	}
	for _, arg := range args[1:] {
		n, ok := checkpoint.ParseName(arg)
		if !ok {
			problems = append(problems,
				fmt.Errorf("NUMBER=%s: expected the number of a commit, as elasticdl checkpoint ls "+
					"%s shows it", arg, args[0]))
		}
		c.named = append(c.named, n)
	}
	return errors.Join(append(problems, atMost(1+most, args))...)
}

// command completes a command whose arguments are DIR and at most most numbers of commits.
func (c *commits) command(cmd *cobra.Command, most int,
	run func(cmd *cobra.Command, d checkpoint.Dir) error) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error { return c.parse(cmd, args, most) }
	cmd.PreRunE = c.format.check
	cmd.RunE = command.Does(func(cmd *cobra.Command, _ []string) error {
		d, err := c.open(cmd.Context())
		if err != nil {
			return err
		}
		return run(cmd, d)
	})
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func (c *commits) open(ctx context.Context) (checkpoint.Dir, error) {
	const expected = "expected the directory of a job's commits, its --checkpoint_dir, or the name " +
		"of a job of this machine that has none given"
	name := path.Base(c.name)
	if n, ok := checkpoint.ParseName(name); ok && strings.HasPrefix(name, "commit-") {
		return checkpoint.Dir{},
			fmt.Errorf("DIR=%s: it is one commit; name the directory that it is in, and its number: %s %d",
				c.name, strings.TrimSuffix(strings.TrimSuffix(c.name, "/"), "/"+name), n.Number)
	}
	if !strings.Contains(c.location, "://") {
		info, err := os.Stat(c.location)
		if own, e := local.CheckpointDir(c.location); e == nil && errors.Is(err, fs.ErrNotExist) {
			if its, e := os.Stat(own); e == nil {
				c.location, c.name, info, err = own, own, its, nil
			}
		}
		switch {
		case err != nil:
			return checkpoint.Dir{}, fmt.Errorf("DIR=%s: %w; %s", c.name, errors.Unwrap(err), expected)
		case !info.IsDir():
			return checkpoint.Dir{}, fmt.Errorf("DIR=%s: it is a file; %s", c.name, expected)
		}
	}
	files, err := bucket.Open(ctx, c.location)
	if err != nil {
		return checkpoint.Dir{}, fmt.Errorf("DIR=%s: %w", c.name, err)
	}
	return checkpoint.Dir{Files: interruptible{files, ctx}}, nil
}

// list returns the states of the named commits, or of all if none are named, the newest first. It
// does not read their shards.
func (c *commits) list(ctx context.Context, d checkpoint.Dir) ([]commitState, error) {
	entries, err := d.Commits()
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("DIR=%s: %w: expected directories named commit-00000001 and so on; a "+
			"job writes them into its --checkpoint_dir",
			c.name, checkpoint.ErrNone)
	}
	var problems []error
	var numbers []int64
	for _, e := range entries {
		numbers = append(numbers, e.Number)
	}
	for _, n := range c.named {
		if !slices.ContainsFunc(entries, func(e checkpoint.Entry) bool { return n.Is(e.Name) }) {
			problems = append(problems, fmt.Errorf("NUMBER=%d: no such commit in %s; there are %s",
				n.Number, c.name, few(numbers)))
		}
	}
	var all []commitState
	for _, e := range entries {
		if len(c.named) > 0 && !slices.ContainsFunc(c.named, func(n checkpoint.Name) bool { return n.Is(e.Name) }) {
			continue
		}
		all = append(all, stateOf(d, e))
		problems = append(problems, ctx.Err())
	}
	return all, errors.Join(problems...)
}

// few returns a list of at most ten of the numbers.
func few(numbers []int64) string {
	words := make([]string, 0, len(numbers))
	for _, n := range numbers[:min(10, len(numbers))] {
		words = append(words, strconv.FormatInt(n, 10))
	}
	if len(numbers) > 10 {
		words = append(words, fmt.Sprintf("… %d more", len(numbers)-10))
	}
	return strings.Join(words, ", ")
}

// The states of a commit.
const (
	commitComplete   = "complete"
	commitIncomplete = "incomplete"
	commitDamaged    = "damaged"
	commitUnreadable = "unreadable" // such as for lack of permission
)

// commitState is the state of a commit in a directory.
type commitState struct {
	Number          int64      `json:"number"`
	State           string     `json:"state"`
	Time            *time.Time `json:"time,omitempty"`
	Version         int64      `json:"version"`
	Records         int64      `json:"records"`
	ModelGeneration int64      `json:"life"`
	Shards          int        `json:"shards"`
	Bytes           int64      `json:"bytes"`
	Problems        []string   `json:"problems,omitempty"`
	Name            string     `json:"name"` // of its directory

	record *checkpoint.Commit // nil: missing, or cannot be read
}

// stateOf reads the record of a commit, and returns its state. An incomplete commit has no record.
func stateOf(d checkpoint.Dir, e checkpoint.Entry) commitState {
	s := commitState{Number: e.Number, Name: e.String(), State: commitIncomplete}
	if e.Err != nil {
		s.failed(e.Err)
		return s
	}
	if !e.Complete {
		s.Problems = []string{"it has no commit.json: a job is writing it, or stopped before its end"}
		s.Shards, s.Bytes = d.Begun(e.Name)
		return s
	}
	c, err := d.ReadCommit(e.Name)
	if err != nil {
		s.failed(err)
		s.Shards, s.Bytes = d.Begun(e.Name)
		return s
	}
	s.State, s.record = commitComplete, c
	s.Time, s.Version, s.Records, s.ModelGeneration, s.Shards, s.Bytes = &c.Time, c.Version, c.Records,
		c.ModelGeneration,
		len(c.Shards), c.Bytes()
	return s
}

// failed sets the state of a commit that cannot be used, and the reason.
func (s *commitState) failed(err error) {
	s.State, s.Problems = commitUnreadable, nil
	if errors.Is(err, checkpoint.ErrDamaged) {
		s.State = commitDamaged
	}
	for line := range strings.Lines(err.Error()) {
		s.Problems = append(s.Problems, strings.TrimPrefix(strings.TrimSpace(line), "read checkpoint: "))
	}
}

func checkpointListCommand() *cobra.Command {
	var c commits
	cmd := c.command(&cobra.Command{
		Use:     "ls DIR",
		Aliases: []string{"list"},
		Short:   "List the commits, the newest first",
		Long: `List the commits, the newest first. Shards are not read: elasticdl checkpoint verify does.

STATE is complete, incomplete (without commit.json: a job is writing it, or stopped early),
damaged (an invalid commit.json) or unreadable (for example, permission denied).`,
	}, 0, func(cmd *cobra.Command, d checkpoint.Dir) error {
		all, err := c.list(cmd.Context(), d)
		if err != nil {
			return err
		}
		if c.format.json() {
			return printJSON(cmd.OutOrStdout(), all)
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), commitTable(all, time.Now()))
		return err
	})
	c.format.flags(cmd)
	return cmd
}

func checkpointInspectCommand() *cobra.Command {
	var c commits
	cmd := c.command(&cobra.Command{
		Use:   "inspect DIR [NUMBER]",
		Short: "Show the model, job, records, variables and shards of a commit",
		Long: `Show the model, job, number of records, variables and shards of a commit.

Default: the newest complete commit. Shards are not read: see elasticdl checkpoint verify.`,
	}, 1, func(cmd *cobra.Command, d checkpoint.Dir) error {
		all, err := c.list(cmd.Context(), d)
		if err != nil {
			return err
		}
		for _, s := range all {
			switch {
			case s.record != nil && c.format.json():
				return printJSON(cmd.OutOrStdout(), inspected{s.record, epochsOf(&s.record.Ledger)})
			case s.record != nil:
				_, err := fmt.Fprint(cmd.OutOrStdout(), commitText(s.record, c.name, time.Now()))
				return err
			case len(c.named) > 0:
				return fmt.Errorf("commit %d of %s is %s: %s", s.Number, c.name, s.State,
					strings.Join(s.Problems, "; "))
			}
			if s.State != commitIncomplete {
				skipped(cmd.ErrOrStderr(), s)
			}
		}
		return fmt.Errorf("DIR=%s: %w that can be read", c.name, checkpoint.ErrNone)
	})
	c.format.flags(cmd)
	return cmd
}

// skipped prints a note that a commit cannot be used, so that an older one is.
func skipped(w io.Writer, s commitState) {
	fmt.Fprintf(w, "note: commit %d is %s: %s\n", s.Number, s.State, strings.Join(s.Problems, "; "))
}

func checkpointVerifyCommand() *cobra.Command {
	var c commits
	cmd := c.command(&cobra.Command{
		Use:   "verify DIR [NUMBER...]",
		Short: "Verify the checksums of commits",
		Long: `Read every byte of the named commits, or of all commits, and compare checksums and lengths.

The exit code is 0 if all commits are intact, 1 if one is damaged. An incomplete commit counts as
damaged only if it is named.`,
	}, anyNumber, func(cmd *cobra.Command, d checkpoint.Dir) error { return c.verify(cmd, d) })
	c.format.flags(cmd)
	return cmd
}

func (c *commits) verify(cmd *cobra.Command, d checkpoint.Dir) error {
	all, err := c.list(cmd.Context(), d)
	if err != nil {
		return err
	}
	var bad []int64
	whole := int64(0) // number of the newest whole commit
	for i := range all {
		s := &all[i]
		if s.record != nil {
			err := d.Verify(s.record)
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			if err != nil {
				s.failed(err)
			} else {
				whole = max(whole, s.Number)
			}
		}
		if s.State != commitComplete && (s.State != commitIncomplete || len(c.named) > 0) {
			bad = append(bad, s.Number)
		}
		if !c.format.json() {
			fmt.Fprint(cmd.OutOrStdout(), verdictOf(*s))
		}
	}
	if c.format.json() {
		if err := printJSON(cmd.OutOrStdout(), all); err != nil {
			return err
		}
	}
	switch {
	case len(bad) > 0 && whole > 0 && len(c.named) == 0:
		return fmt.Errorf("not whole: %s; a resumed job uses commit %d, the newest whole one", few(bad), whole)
	case len(bad) > 0:
		return fmt.Errorf("not whole: %s", few(bad))
	case whole == 0:
		return fmt.Errorf("DIR=%s: %w that is complete", c.name, checkpoint.ErrNone)
	}
	return nil
}

func checkpointExportCommand() *cobra.Command {
	var c commits
	var out string
	var number int64
	cmd := c.command(&cobra.Command{
		Use:   "export DIR OUT",
		Short: "Export the model of a commit",
		Long: `Write the model of a commit to OUT/` + checkpoint.ModelFile + `, as a job writes it to its --output.

OUT is a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX.

Every byte of the commit is verified first.`,
	}, 0, func(cmd *cobra.Command, d checkpoint.Dir) error { return c.export(cmd, d, number, out) })
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) < 2 {
			return fmt.Errorf("expected a directory of commits and one to write to, as: %s ckpt model",
				cmd.CommandPath())
		}
		out = args[1]
		var problem error
		if cmd.Flags().Changed("number") && number <= 0 {
			problem = fmt.Errorf("--number=%d: expected the number of a commit, as elasticdl "+
				"checkpoint ls %s shows it", number, args[0])
		}
		_, wrong := checkpoint.ParseLocation(out)
		if wrong != nil {
			wrong = fmt.Errorf("OUT=%w", wrong)
		}
		return errors.Join(c.parse(cmd, args[:1], 0), wrong, atMost(2, args), problem)
	}
	cmd.PreRunE = nil
	cmd.Flags().Int64Var(&number, "number", 0, "number of the commit; 0 for the newest intact one")
	return cmd
}

func (c *commits) export(cmd *cobra.Command, d checkpoint.Dir, number int64, out string) error {
	files, err := bucket.Open(cmd.Context(), out)
	if err != nil {
		return fmt.Errorf("OUT=%s: %w", out, err)
	}
	record, err := c.whole(cmd, d, number)
	if err != nil {
		return err
	}
	show := &steps{out: cmd.ErrOrStderr()}
	defer show.close()
	to := interruptible{files, cmd.Context()}
	total := 4 * int64(record.ParamLayout().Len())
	err = d.Export(record, to, func(bytes int64) {
		show.show(stepProgress{Step: fmt.Sprintf("Exporting commit %d", record.Number), Bytes: true,
			Done: bytes, Total: max(bytes, total)})
	})
	if err != nil {
		return err
	}
	show.close()
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "commit %d, version %d of %s, exported to %s\n",
		record.Number, record.Version, record.ModelDef, strings.TrimSuffix(to.String(), "/")+"/"+checkpoint.ModelFile)
	return err
}

// whole returns the commit of a number, 0 for the newest whole one, after verifying every byte of
// it.
func (c *commits) whole(cmd *cobra.Command, d checkpoint.Dir, number int64) (*checkpoint.Commit, error) {
	if number == 0 {
		record, damaged, err := d.Newest()
		if cmd.Context().Err() != nil {
			return nil, cmd.Context().Err()
		}
		for _, damage := range damaged {
			s := commitState{Number: damage.Commit.Number}
			s.failed(damage.Err)
			skipped(cmd.ErrOrStderr(), s)
		}
		if errors.Is(err, checkpoint.ErrNone) {
			err = fmt.Errorf("DIR=%s: %w that is complete and whole; elasticdl checkpoint verify "+
				"%[1]s reports the reasons", c.name, checkpoint.ErrNone)
		}
		return record, err
	}
	c.named = []checkpoint.Name{{Number: number}}
	all, err := c.list(cmd.Context(), d)
	if err == nil {
		_, err = d.Find(number) // an error if several have the number
	}
	if err != nil {
		return nil, err
	}
	s := all[0]
	if s.record != nil {
		if err := d.Verify(s.record); cmd.Context().Err() != nil {
			return nil, cmd.Context().Err()
		} else if err != nil {
			s.failed(err)
		}
	}
	if s.State != commitComplete {
		return nil, fmt.Errorf("commit %d of %s is %s: %s; elasticdl checkpoint ls %[2]s shows others",
			s.Number, c.name, s.State, strings.Join(s.Problems, "; "))
	}
	return s.record, nil
}

// interruptible is a directory of files whose reads and writes fail after the end of a context.
type interruptible struct {
	checkpoint.Files
	ctx context.Context
}

func (i interruptible) Open(name string) (io.ReaderAt, int64, io.Closer, error) {
	f, size, closer, err := i.Files.Open(name)
	return interruptibleReader{f, i.ctx}, size, closer, err
}

func (i interruptible) Create(name string) (checkpoint.Writer, error) {
	w, err := i.Files.Create(name)
	return interruptibleWriter{w, i.ctx}, err
}

func (i interruptible) CreateNew(name string) (checkpoint.Writer, error) {
	w, err := i.Files.CreateNew(name)
	return interruptibleWriter{w, i.ctx}, err
}

type interruptibleReader struct {
	io.ReaderAt
	ctx context.Context
}

func (r interruptibleReader) ReadAt(b []byte, at int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.ReaderAt.ReadAt(b, at)
}

type interruptibleWriter struct {
	checkpoint.Writer
	ctx context.Context
}

func (w interruptibleWriter) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Writer.Write(b)
}
