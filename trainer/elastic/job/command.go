package job

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Command is a parsed command line of `elasticdl train`, evaluate, predict or run.
type Command struct {
	Job *Job
	// "kubernetes" or "local"
	Runtime string
	// --detach: leave the job running in the background
	Detach bool
	// --dry_run: print the job, and start nothing
	DryRun bool
	// "text" or "json": format of the job's status at its start or end
	Format string
	// notes for the user, a line each, such as flags without effect
	Notes []string

	// With Kubernetes.
	// --follow: show logs until the end
	Follow bool
	// --watch: show the job until the end
	Watch bool
	// --yaml: write manifests to this file, "-" for standard output, and submit nothing; "" =
	// submit
	YAML string
	// --cluster_spec: a file, whose content the caller puts into Job.ClusterSpecJSON; "" = none
	ClusterSpec string
	// --workdir: a directory of this machine, which the caller uploads, see [Job.SetCode]; "" =
	// none
	Upload string
	// --context: of the kube config file; "" = the current one
	Context string
	// --kubeconfig: "" = the file that kubectl uses
	Kubeconfig string

	// RetryTimeout limits the retries of requests that the cluster does not answer
	// (--retry_timeout).
	RetryTimeout Duration

	// flags that were given, in the order of the command line
	given []*Flag
	// problems that were found so far
	problems problems
	// --record_per_task
	recordsPerTask int
	// --repository
	repository string
	// --prediction_outputs_processor
	processor string
	// --job_command
	jobCommand string
}

// NewCommand returns a command for a type of job, with the defaults of all flags. A command to
// train also has the defaults of a program, for --job_command.
func NewCommand(t Type) *Command {
	j := DefaultOf(t)
	j.Program = defaultProgram()
	return &Command{Job: j, Runtime: "kubernetes", Format: "text",
		RetryTimeout: Duration{10 * time.Minute}, processor: "PredictionOutputsProcessor"}
}

// Value is a flag of a command line, for the parser: a pflag.Value. It never refuses a value, so
// that the parser continues. [Command.Settle] reports all problems of values.
type Value struct {
	command *Command
	// nil: there is no such flag
	flag *Flag
	// name for problems
	name string
}

// Value returns the flag of that name. If there is no such flag, setting it is a problem.
func (c *Command) Value(name string) *Value { return &Value{c, Find(name), name} }

// Command returns the command that the flag is of.
func (v *Value) Command() *Command { return v.command }

// String returns the value of the flag.
func (v *Value) String() string {
	if v.flag == nil {
		return ""
	}
	return v.flag.bind(v.command).get()
}

// Type returns the placeholder of the flag's value in the help text, "" for a boolean.
func (v *Value) Type() string {
	if v.flag == nil {
		return ""
	}
	return v.flag.Kind()
}

// Set sets the flag, and records a problem if the value is wrong.
func (v *Value) Set(text string) error {
	c, f := v.command, v.flag
	if f == nil {
		c.problems.check(false, setting(v.name), "unknown flag%s", suggest(c.Job.Type, v.name))
		return nil
	}
	bound := f.bind(c)
	err := bound.set(text)
	if !utf8.ValidString(text) { // a job is JSON
		err = errors.New("expected UTF-8")
	}
	c.problems.check(err == nil, setting(v.name, text), "%v", err)
	if err == nil && f.Effect == Later && bound.get() != f.Default(c.Job.Type) {
		c.problems.check(false, setting(f.Name), "not available in this version yet%s", f.Instead)
	}
	if !slices.Contains(c.given, f) {
		c.given = append(c.given, f)
	}
	return nil
}

// Lacks records the problem that the flag was given without the value that it needs.
func (v *Value) Lacks() {
	if v.flag == nil {
		v.Set("")
		return
	}
	v.command.problems.check(false, setting(v.name), "needs a value")
}

// FromEnviron sets the flags of torchrun's variables, such as PET_NNODES for --nnodes. The command
// line is parsed later, and has precedence. Empty variables are ignored.
func (c *Command) FromEnviron(environ []string) {
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		name, ok := strings.CutPrefix(name, "PET_")
		if f := Find(strings.ToLower(name)); ok && f != nil && f.ofProgram() && value != "" {
			c.Value(f.Name).Set(value)
		}
	}
}

// Words sets the words of the command line that are no flags: the program and its arguments for a
// program's job, and none for other jobs.
func (c *Command) Words(words []string) {
	if c.Job.Runs() {
		c.Job.Program.Command = slices.Clone(words)
		return
	}
	for _, word := range words {
		c.unexpected(word)
	}
}

func (c *Command) unexpected(word string) {
	c.problems.check(false, mention{}, "unexpected argument %q: expected --name=value", word)
}

// Settle completes the job after all flags were set, and returns all problems, including those of
// Validate, joined. With an error, the command has those settings that are correct. It is called
// once.
func (c *Command) Settle() error {
	p := &c.problems
	c.settleCommand(p)
	c.finish(p)
	c.refuseLater(p)
	*p = append(*p, c.invalid(*p)...)
	c.notePathsOffVolumes()
	c.noteFlagsWithoutEffect()
	return p.err()
}

// finish sets, and checks, what depends on more than one flag.
func (c *Command) finish(p *problems) {
	j := c.Job
	if n := c.recordsPerTask; c.has("record_per_task") && j.MinibatchSize > 0 && !j.Runs() {
		p.check(n > 0 && n%j.MinibatchSize == 0, setting("record_per_task", n),
			"expected a multiple of %v", setting("minibatch_size", j.MinibatchSize))
		j.NumMinibatchesPerTask = max(1, n/j.MinibatchSize)
	}
	if prefix := strings.TrimSuffix(c.repository, "/") + "/"; c.repository != "" && j.Image != "" &&
		!strings.HasPrefix(j.Image, prefix) {
		j.Image = prefix + j.Image
	}
	j.Image = cmp.Or(j.Image, j.Worker.Image) // of the master, too
	j.Settle(c.has)
	if j.Runs() {
		c.settleProgram()
		c.settleWorkdir(p)
	}
	c.settleCheckpoints(p)
	if j.Trains() && !c.has("distribution_strategy") && c.has("num_ps_pods") && j.NumPS == 0 {
		c.Notes = append(c.Notes, "--num_ps_pods=0 means --distribution_strategy="+string(AllReduce))
	}
	p.check(c.ClusterSpec == "" || j.ClusterSpecJSON == "", setting("cluster_spec", c.ClusterSpec),
		"sets the same fields as %v; remove one of the two", setting("cluster_spec_json"))
	p.check(!c.Follow || !c.Watch, setting("follow"), "prints logs, but %v prints progress; remove one of the two",
		setting("watch"))
	for _, f := range []struct {
		name  string
		given bool
	}{{"follow", c.Follow}, {"watch", c.Watch}} {
		p.check(!f.given || !c.Detach, setting(f.name), "contradicts %v; remove one of the two", setting("detach"))
		p.check(!f.given || c.YAML == "" || c.Runtime == "local", setting(f.name),
			"with %v there is no job to %s; remove one of the two", setting("yaml", c.YAML), f.name)
	}
	p.check(!c.has("grace_period") || j.GracePeriod.Duration > 0,
		setting("grace_period", j.GracePeriod), "expected 1s or more")
	p.oneOf(c.Format, "format", "text", "json")
	p.check(c.RetryTimeout.Duration >= 0, setting("retry_timeout", c.RetryTimeout), "expected a time of 0 or more")
	p.check(c.Format != "json" || c.YAML == "" || c.Runtime == "local", setting("format", "json"),
		"with %v no job is started that has a status; remove one of the two", setting("yaml", c.YAML))
	p.check(j.Strategy != ParameterServer || !c.has("heartbeat_timeout"),
		setting("heartbeat_timeout", j.HeartbeatTimeout),
		"needs %v", setting("distribution_strategy", AllReduce))
}

// settleCheckpoints sets the default directory of checkpoints on a cluster. On one machine the
// caller sets it.
func (c *Command) settleCheckpoints(p *problems) {
	j, dir := c.Job, "here"
	if !j.Trains() {
		j.SettleCheckpoints("", c.has)
		return
	}
	if c.Runtime == "kubernetes" {
		dir = j.ClaimDir()
	}
	j.SettleCheckpoints(dir, c.has)
	p.check(j.CheckpointDir != "" || !c.has("keep_checkpoint_max") || j.KeepCheckpointMax <= 0,
		setting("keep_checkpoint_max", j.KeepCheckpointMax),
		"there are no checkpoints; give %v, or remove it", setting("checkpoint_dir"))
	if c.Runtime == "local" {
		if j.CheckpointDir == "" {
			p.check(j.CheckpointSteps <= 0, setting("checkpoint_steps", j.CheckpointSteps),
				"there are no checkpoints with %v; remove one of the two", setting("checkpoint_dir", ""))
			p.check(j.CheckpointInterval.Duration <= 0, setting("checkpoint_interval", j.CheckpointInterval),
				"there are no checkpoints with %v; remove one of the two", setting("checkpoint_dir", ""))
		}
		j.SettleCheckpoints("", c.has)
	}
}

// refuseLater refuses values that are not available in this version yet.
func (c *Command) refuseLater(p *problems) {
	p.check(c.Runtime == "kubernetes" || c.Runtime == "local", setting("runtime", c.Runtime),
		"expected kubernetes or local")
	if !c.Job.Trains() {
		return
	}
	switch c.Job.Strategy {
	case "Local", "":
		p.check(false, setting("distribution_strategy", c.Job.Strategy),
			"not available in this version yet; give %s or %s", ParameterServer, AllReduce)
		c.Job.Strategy = ParameterServer // and no second complaint
		c.Job.NumPS = max(1, c.Job.NumPS)
	}
}

// invalid returns the problems that Validate finds, except with settings that have a problem in p.
func (c *Command) invalid(p problems) problems {
	all := c.Job.validate()
	if c.Runtime == "kubernetes" {
		all = append(all, c.Job.validateCluster()...)
	}
	return slices.DeleteFunc(all, func(o *Problem) bool { return p.has(o.about) })
}

// noteFlagsWithoutEffect adds notes about given flags that have no effect in this job or runtime.
func (c *Command) noteFlagsWithoutEffect() {
	var localOnly, cluster, ignored, idle []string
	for _, f := range c.given {
		switch {
		case !f.With(c.Job.Type):
			if f.Kind() != "PATH" || c.Job.Runs() || f.ofProgram() { // Validate refuses the others
				idle = append(idle, "--"+f.Name)
			}
		case f.Effect == LocalOnly && c.Runtime == "kubernetes":
			localOnly = append(localOnly, "--"+f.Name)
		case f.Effect == Cluster && c.Runtime == "local":
			cluster = append(cluster, "--"+f.Name)
		case f.Effect == Ignored:
			ignored = append(ignored, fmt.Sprintf("--%s (%s)", f.Name, f.Usage))
		}
	}
	if len(localOnly) > 0 {
		c.Notes = append(c.Notes, "no effect on Kubernetes, where it is always on: "+strings.Join(localOnly, ", "))
	}
	if len(idle) > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("no effect with %s: %s", c.Job.Type, strings.Join(idle, ", ")))
	}
	if len(cluster) > 0 {
		c.Notes = append(c.Notes, "no effect with --runtime=local: "+strings.Join(cluster, ", "))
	}
	if len(ignored) > 0 {
		c.Notes = append(c.Notes, "no effect: "+strings.Join(ignored, ", "))
	}
}

// notePathsOffVolumes adds notes about paths of a job on a cluster that lie outside its volumes.
// It does not know what --cluster_spec mounts.
func (c *Command) notePathsOffVolumes() {
	j := c.Job
	if c.Runtime != "kubernetes" {
		return
	}
	if j.OutputInPod() {
		c.Notes = append(c.Notes, fmt.Sprintf(
			"--output=%s is on no --volume: it is deleted with the pod that writes it", j.Output))
	}
	if c.ClusterSpec != "" || j.ClusterSpecJSON != "" {
		return
	}
	switch g := &j.Program; {
	case !j.Runs():
	case g.LogDir == "" && toFiles.MatchString(g.Tee):
		c.Notes = append(c.Notes, fmt.Sprintf(
			"--tee=%s: without --log_dir the files are in each worker's pod, and deleted with it; elasticdl logs prints the same output",
			g.Tee))
	case g.LogDir != "" && j.volumeOf(g.LogDir) == nil:
		c.Notes = append(c.Notes, fmt.Sprintf(
			"--log_dir=%s is on no --volume: it is deleted with each worker's pod", g.LogDir))
	}
	for _, f := range []struct{ flag, path string }{{"training_data", j.TrainingData},
		{"validation_data", j.ValidationData}, {"prediction_data", j.PredictionData}} {
		if f.path != "" && !strings.Contains(f.path, "://") && j.volumeOf(f.path) == nil {
			c.Notes = append(c.Notes, fmt.Sprintf("--%s=%s is on no --volume: the image must contain it",
				f.flag, f.path))
		}
	}
}

func (c *Command) has(name string) bool {
	return slices.ContainsFunc(c.given, func(f *Flag) bool { return f.Name == name })
}

// Given reports whether the command line, or torchrun's environment, set the flag.
func (c *Command) Given(name string) bool { return c.has(name) }

// Find returns the flag of that name or alias, with dashes or underscores; nil if there is none.
func Find(name string) *Flag {
	name = strings.ReplaceAll(name, "-", "_")
	for i := range flags {
		if flags[i].Name == name || slices.Contains(flags[i].Aliases, name) {
			return &flags[i]
		}
	}
	return nil
}

// suggest returns "; did you mean --x?" for the flag whose name is most similar to an unknown one,
// or a reference to the help text.
func suggest(t Type, name string) string {
	var known []string
	for i := range flags {
		known = append(append(known, flags[i].Name), flags[i].Aliases...)
	}
	if nearest := Nearest(name, known); nearest != "" {
		return "; did you mean --" + Find(nearest).Name + "?"
	}
	return fmt.Sprintf("; see elasticdl %s --help", t)
}

// Nearest returns the known name that is most similar to an unknown name, "" if none is similar.
func Nearest(name string, known []string) string {
	name = strings.ReplaceAll(name, "-", "_")
	best, nearest := max(2, len(name)/3)+1, ""
	for _, k := range known {
		d := Distance(name, k)
		if strings.HasPrefix(k, name) && len(name) > 3 {
			d = min(d, 1)
		}
		if d < best {
			best, nearest = d, k
		}
	}
	return nearest
}

// Distance returns the Levenshtein distance of a and b.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost++
			}
			corner = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
