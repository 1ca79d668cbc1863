package job

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/elasticdl/elasticdl/trainer/elastic/source"
)

// Program is a user's training program, which workers run instead of a model: an unchanged PyTorch
// script. Its options have the names and meanings of torchrun's, where torchrun has them.
type Program struct {
	// words after --: a script or a program, and its arguments
	Command []string `json:"command,omitempty"`
	// --nproc_per_node: processes of each worker; a number, auto, cpu or gpu
	Processes string `json:"processes,omitzero"`
	// --module: the first word is a Python module
	Module bool `json:"module,omitzero"`
	// --no_python: the first word is a program
	NoPython bool `json:"noPython,omitzero"`
	// --max_restarts: retry budget: failures by its own fault before the job fails
	MaxRestarts int `json:"maxRestarts,omitzero"`
	// --start_method: fork or exec
	StartMethod string `json:"startMethod,omitzero"`
	// --restart_on_join: now, checkpoint or never
	RestartOnJoin string `json:"restartOnJoin,omitzero"`
	// --checkpoint_file: pattern of the files that the script writes
	Checkpoint string `json:"checkpointFile,omitzero"`
	// --restart_grace: time from SIGTERM to SIGKILL when processes restart
	Grace Duration `json:"grace,omitzero"`
	// --gather_timeout: maximum wait for all workers before a start without state; 0: no wait
	Gather Duration `json:"gatherTimeout,omitzero"`
	// --hang_timeout: time without a sign of progress after which the ranks that differ are killed;
	// 0: none is
	Hang Duration `json:"hangTimeout,omitzero"`
	// --role: of the processes
	Role string `json:"role,omitzero"`
	// --log_dir: directory for the output of the processes
	LogDir string `json:"logDir,omitzero"`
	// --redirects: streams to files: 0 none, 1 stdout, 2 stderr, 3 both; or by local rank, 0:3,1:1
	Redirects string `json:"redirects,omitzero"`
	// --tee: streams to files and to the worker's log
	Tee string `json:"tee,omitzero"`
	// --local_ranks_filter: local ranks whose output the worker's log has, 0,1; "" = all
	LocalRanks string `json:"localRanksFilter,omitzero"`
	// --program_sha256: checksum of the file, if the first word is a URL
	SHA256 string `json:"sha256,omitzero"`
	// --gpus: of each worker
	GPUs int `json:"gpus,omitzero"`
	// --network_interface: for gloo and NCCL; "" = the one with the route to the other workers
	Interface string `json:"interface,omitzero"`
	// --agent_image_name: image with the elasticdl binary, which also runs the master; "" = the
	// job's image has the binary
	AgentImage string `json:"agentImage,omitzero"`
	// --workdir: working directory of the processes, as a path of the worker; "" = the worker's own
	Workdir string `json:"workdir,omitzero"`
	// archive on a volume, of the directory that --workdir named; each worker unpacks it, and its
	// processes start there
	Code string `json:"code,omitzero"`
	// checksum of the archive
	CodeSHA256 string `json:"codeSHA256,omitzero"`
}

// Values of --restart_on_join: when a new worker restarts processes that keep no state.
const (
	RestartNow = "now" // at once, as torchrun does
	// when the script has written its next checkpoint
	RestartAtCheckpoint = "checkpoint"
	// never: they join at the next restart for another reason
	RestartNever = "never"
)

// Values of --start_method.
const (
	StartFork = "fork" // from a process that has imported torch
	StartExec = "exec" // a new interpreter for each
)

// shortestHang is the shortest --hang_timeout: a job is suspected to hang after 45 s without a sign
// of life, and its stacks are looked at after that.
const shortestHang = time.Minute

// programFlags are the flags of `elasticdl run`.
var programFlags = []Flag{
	{Name: "nproc_per_node", Topic: Processes, Effect: Everywhere,
		Usage: "processes per worker; auto: one per GPU, without GPUs one per CPU", bind: func(c *Command) value {
			return processes(&c.Job.Program.Processes)
		}},
	{Name: "nnodes", Topic: Processes, Effect: Everywhere,
		Usage: "number of workers, or MIN:MAX for --num_workers, --min_workers and --max_workers",
		bind: func(c *Command) value {
			return nodes(c)
		}},
	{Name: "max_restarts", Topic: Processes, Effect: Everywhere,
		Usage: "retry budget: failures of the program before the job fails; world changes do not count [0]",
		bind: func(c *Command) value {
			return number(&c.Job.Program.MaxRestarts)
		}},
	{Name: "module", Short: "m", Topic: Processes, Effect: Everywhere,
		Usage: "run a Python module, like python -m", bind: func(c *Command) value {
			return boolean(&c.Job.Program.Module)
		}},
	{Name: "no_python", Topic: Processes, Effect: Everywhere,
		Usage: "run a program that is not a Python script", bind: func(c *Command) value {
			return boolean(&c.Job.Program.NoPython)
		}},
	{Name: "start_method", Topic: Processes, Effect: Everywhere,
		Usage: "start of a process: fork of a process that has imported torch, or exec of a new one",
		bind: func(c *Command) value {
			return startMethod(&c.Job.Program.StartMethod)
		}},
	{Name: "restart_on_join", Topic: Processes, Effect: Everywhere,
		Usage: "when a new worker restarts processes that keep no state: now, checkpoint (after the next) or never",
		bind: func(c *Command) value {
			return text(&c.Job.Program.RestartOnJoin)
		}},
	{Name: "checkpoint_file", Topic: Processes, Effect: Everywhere,
		Usage: "checkpoint files of the program, for progress and --restart_on_join; * and ? are wildcards",
		bind: func(c *Command) value {
			return filePath(&c.Job.Program.Checkpoint)
		}},
	{Name: "restart_grace", Topic: Processes, Effect: Everywhere,
		Usage: "time from SIGTERM to SIGKILL when processes restart", bind: func(c *Command) value {
			return duration(&c.Job.Program.Grace)
		}},
	{Name: "gather_timeout", Topic: Processes, Effect: Everywhere,
		Usage: "maximum wait for all workers at the start, or for a replacement; 0 disables the wait",
		bind: func(c *Command) value {
			return duration(&c.Job.Program.Gather)
		}},
	{Name: "hang_timeout", Topic: Processes, Effect: Everywhere,
		Usage: "time without progress until the rank that differs is killed, counted as a failure; 0 disables it [0]",
		bind: func(c *Command) value {
			return duration(&c.Job.Program.Hang)
		}},
	{Name: "role", Topic: Processes, Effect: Everywhere,
		Usage: "role of the processes, for ROLE_NAME and log lines", bind: func(c *Command) value {
			return text(&c.Job.Program.Role)
		}},
	{Name: "log_dir", Topic: Processes, Effect: Everywhere,
		Usage: "directory of each worker for the output files of its processes [a temporary one]",
		bind: func(c *Command) value {
			return filePath(&c.Job.Program.LogDir)
		}},
	{Name: "redirects", Short: "r", Topic: Processes, Effect: Everywhere,
		Usage: "streams that go to files only: 0 none, 1 stdout, 2 stderr, 3 both; per local rank: 0:3,1:1",
		bind: func(c *Command) value {
			return text(&c.Job.Program.Redirects)
		}},
	{Name: "tee", Short: "t", Topic: Processes, Effect: Everywhere,
		Usage: "streams that go to files and to the worker's log; values as for --redirects",
		bind: func(c *Command) value {
			return text(&c.Job.Program.Tee)
		}},
	{Name: "local_ranks_filter", Topic: Processes, Effect: Everywhere,
		Usage: "local ranks whose output is in the worker's log, such as 0,1 [all]",
		bind: func(c *Command) value {
			return text(&c.Job.Program.LocalRanks)
		}},
	{Name: "workdir", Topic: Processes, Effect: Everywhere, Aliases: []string{"working_dir"},
		Usage: "working directory; on Kubernetes a local one, uploaded to the claim of --volume",
		bind: func(c *Command) value {
			return filePath(&c.Job.Program.Workdir)
		}},
	{Name: "program_sha256", Topic: Processes, Effect: Everywhere,
		Usage: "SHA-256 of the script or archive at a URL", bind: func(c *Command) value {
			return text(&c.Job.Program.SHA256)
		}},
	{Name: "gpus", Topic: Pods, Effect: Everywhere, Usage: "number of GPUs per worker", bind: func(c *Command) value {
		return number(&c.Job.Program.GPUs)
	}},
	{Name: "network_interface", Topic: Pods, Effect: Everywhere,
		Usage: "network interface for gloo and NCCL [the one with the route to the other workers]",
		bind: func(c *Command) value {
			return text(&c.Job.Program.Interface)
		}},
	{Name: "agent_image_name", Topic: Pods, Effect: Cluster,
		Usage: "image with elasticdl, for the master and images without it [$ELASTICDL_AGENT_IMAGE]",
		bind: func(c *Command) value {
			return text(&c.Job.Program.AgentImage)
		}},
	{Name: "standalone", Topic: Remnants, Effect: Ignored, Usage: "no endpoint is needed", bind: toBool},
	{Name: "rdzv_backend", Topic: Remnants, Effect: Ignored, Usage: "the master is the rendezvous", bind: toNowhere},
	{Name: "rdzv_endpoint", Topic: Remnants, Effect: Ignored, Usage: "the master is the rendezvous", bind: toNowhere},
	{Name: "rdzv_id", Topic: Remnants, Effect: Ignored, Usage: "see --job_name", bind: toNowhere},
	{Name: "rdzv_conf", Topic: Remnants, Effect: Ignored, Usage: "see --heartbeat_timeout", bind: toNowhere},
	{Name: "monitor_interval", Topic: Remnants, Effect: Ignored, Usage: "processes are not polled", bind: toNowhere},
	{Name: "node_rank", Topic: Remnants, Effect: Ignored, Usage: "the master assigns ranks", bind: nodeRank},
	{Name: "master_addr", Topic: Remnants, Effect: Ignored, Usage: "the master is the rendezvous", bind: toNowhere},
	{Name: "master_port", Topic: Remnants, Effect: Ignored, Usage: "the master is the rendezvous", bind: toNowhere},
	{Name: "local_addr", Topic: Remnants, Effect: Ignored,
		Usage: "workers use the addresses of their pods; see --network_interface", bind: toNowhere},
	{Name: "event_log_handler", Topic: Remnants, Effect: Ignored,
		Usage: "see elasticdl status and Kubernetes events", bind: toNowhere},
	{Name: "signals_to_handle", Topic: Remnants, Effect: Ignored,
		Usage: "a stopped worker forwards SIGTERM to its processes", bind: toNowhere},
	{Name: "logs_specs", Topic: Remnants, Effect: Later, Usage: "another kind of logs",
		Instead: "; see --log_dir, --redirects and --tee", bind: toNowhere},
	{Name: "run_path", Topic: Remnants, Effect: Later, Usage: "run the script by runpy",
		Instead: "; leave it out: a script is run as python3 runs it", bind: toBool},
	{Name: "numa_binding", Topic: Remnants, Effect: Later, Usage: "bind processes to the processors of their GPU",
		Instead: "; bind them in the script, or on a cluster by the kubelet's Topology Manager", bind: toNowhere},
	{Name: "virtual_local_rank", Topic: Remnants, Effect: Later, Usage: "LOCAL_RANK=0 and one GPU for each process",
		Instead: "; on a cluster each worker of --nproc_per_node=1 and --gpus=1 has that", bind: toBool},
}

// Title returns the command for messages, without the signature of a URL.
func (g *Program) Title() string {
	if len(g.Command) == 0 {
		return ""
	}
	return strings.Join(append([]string{source.Shown(g.Command[0])}, g.Command[1:]...), " ")
}

// defaultProgram returns torchrun's defaults, for options that torchrun has.
func defaultProgram() Program {
	return Program{
		Processes: "1", StartMethod: StartFork, RestartOnJoin: RestartNow, Role: "default",
		Redirects: "0", Tee: "0", Grace: Duration{time.Second},
		Gather: Duration{10 * time.Second},
	}
}

// processes returns the value of --nproc_per_node: a number, or auto, cpu, gpu.
func processes(p *string) value {
	v := text(p)
	v.kind = "N|auto|cpu|gpu"
	return v
}

// nodes returns the value of torchrun's --nnodes.
func nodes(c *Command) value {
	set := func(s string) error {
		low, high, elastic := strings.Cut(s, ":")
		least, err := strconv.Atoi(low)
		most := least
		if elastic && err == nil {
			most, err = strconv.Atoi(high)
		}
		if err != nil || least < 1 || most < least {
			return fmt.Errorf("expected N or MIN:MAX, as 2 or 1:4")
		}
		c.Job.MinWorkers, c.Job.MaxWorkers, c.Job.NumWorkers = least, most, most
		return nil
	}
	return value{kind: "N|MIN:MAX", at: new(int), set: set, get: func() string { return "" }}
}

// startMethod returns the value of --start_method. It accepts torchrun's names, too: spawn means
// exec, which starts a new interpreter, and forkserver means fork.
func startMethod(p *string) value {
	v := text(p)
	v.set = func(s string) error {
		switch s {
		case "spawn":
			s = StartExec
		case "forkserver":
			s = StartFork
		}
		*p = s
		return nil
	}
	return v
}

// nodeRank returns the value of torchrun's --node_rank. It accepts only 0: the command on a further
// node would start the job again.
func nodeRank(*Command) value {
	set := func(s string) error {
		if s != "0" {
			return errors.New("expected 0: one command starts the workers of all nodes, so run it once, without this")
		}
		return nil
	}
	return value{kind: "0", at: new(int), set: set, get: func() string { return "" }}
}

// sha256 matches a checksum.
var sha256 = regexp.MustCompile(`^[0-9a-f]{64}$`)

// checkProgram refuses a program that cannot run with the settings.
func (j *Job) checkProgram(p *problems) {
	g := &j.Program
	p.given(len(g.Command) > 0 && g.Command[0] != "", theProgram(), "%v", either{
		"give a script or a program after --, as in: elasticdl run -- python3 main.py --epochs=2",
		"a script or a program, and its arguments, as [python3, main.py, --epochs=2]"})
	launcher := g.Launcher()
	p.check(launcher == "", theProgram(launcher),
		"leave it out: elasticdl starts the processes itself, and has torchrun's options%v", either{
			", as in: elasticdl run --nproc_per_node=2 main.py --epochs=2",
			" as fields of their own, as processes: \"2\", command: [main.py, --epochs=2]"})
	for i, word := range g.Command { // a job is JSON
		p.check(utf8.ValidString(word), theProgram(), "word %d is %q: expected UTF-8", i+1, word)
	}
	if n, err := strconv.Atoi(g.Processes); err == nil {
		p.atLeast(1, n, "nproc_per_node")
	} else {
		p.oneOf(g.Processes, "nproc_per_node", "a number", "auto", "cpu", "gpu")
	}
	p.check(!g.Module || !g.NoPython, setting("no_python"),
		"with %v the first word is a Python module; remove one of the two", setting("module"))
	p.atLeast(0, g.MaxRestarts, "max_restarts")
	p.atLeast(0, g.GPUs, "gpus")
	p.atLeast(0, j.NumMinibatchesPerTask, "num_minibatches_per_task")
	for _, r := range []Resources{j.Worker.Request, j.Worker.Limit} {
		other := r[gpu]
		p.check(g.GPUs == 0 || other == "" || other == strconv.Itoa(g.GPUs), setting("gpus", g.GPUs),
			"%v and %v set %s=%s; remove one of the two", setting("worker_resource_request"),
			setting("worker_resource_limit"), gpu, other)
	}
	sum := g.SHA256
	if !sha256.MatchString(sum) {
		p.check(sum == "", setting("program_sha256", sum), "expected 64 hexadecimal digits")
		sum = ""
	}
	if len(g.Command) > 0 && g.Command[0] != "" {
		checkSource(g.Command, sum, p)
	}
	p.oneOf(g.StartMethod, "start_method", StartFork, StartExec)
	p.oneOf(g.RestartOnJoin, "restart_on_join", RestartNow, RestartAtCheckpoint, RestartNever)
	p.check(g.RestartOnJoin != RestartAtCheckpoint || g.Checkpoint != "", setting("restart_on_join", g.RestartOnJoin),
		"give %v, which the program writes", setting("checkpoint_file"))
	if _, err := path.Match(g.Checkpoint, ""); err != nil {
		p.check(false, setting("checkpoint_file", g.Checkpoint), "expected a path, with * and ? for any characters")
	}
	p.check(g.Grace.Duration >= 0, setting("restart_grace", g.Grace), "expected 0s or more")
	p.check(g.Gather.Duration >= 0, setting("gather_timeout", g.Gather), "expected 0s or more")
	p.check(g.Hang.Duration == 0 || g.Hang.Duration >= shortestHang, setting("hang_timeout", g.Hang),
		"expected %v or more, or 0s: a shorter pause is no sign of a hang", shortestHang)
	p.check(g.Role != "", setting("role", ""), "expected a name")
	for _, f := range []struct{ flag, streams string }{{"redirects", g.Redirects}, {"tee", g.Tee}} {
		p.check(streams.MatchString(f.streams), setting(f.flag, f.streams),
			"expected 0, 1, 2 or 3, or one of them by local rank, as 0:3,1:1")
	}
	g.checkLocalRanks(p)
	p.check(j.HeartbeatTimeout.Duration >= time.Second,
		setting("heartbeat_timeout", j.HeartbeatTimeout), "expected 1s or more")
}

// checkLocalRanks refuses a filter that is no list, or that hides the output of all processes.
func (g *Program) checkLocalRanks(p *problems) {
	if g.LocalRanks == "" {
		return
	}
	count, err := strconv.Atoi(g.Processes) // otherwise each worker has its own number
	some := err != nil
	for text := range strings.SplitSeq(g.LocalRanks, ",") {
		local, err := strconv.Atoi(text)
		if err != nil || local < 0 {
			p.check(false, setting("local_ranks_filter", g.LocalRanks),
				"expected local ranks with commas between, as 0,1")
			return
		}
		some = some || local < count
	}
	p.check(some, setting("local_ranks_filter", g.LocalRanks),
		"no process of %v is among them, and no output would be shown", setting("nproc_per_node", count))
}

// checkSource refuses a program whose location is not valid.
func checkSource(command []string, sum string, p *problems) {
	_, err := source.Parse(command, sum)
	switch wrong, ok := errors.AsType[*source.Error](err); {
	case errors.Is(err, source.ErrTwoChecksums):
		p.check(false, setting("program_sha256", sum), "%v", wrong.Reason)
	case ok:
		p.check(false, theProgram(wrong.Location), "%v", wrong.Reason)
	}
}

var (
	streams = regexp.MustCompile(`^([0-3]|\d+:[0-3](,\d+:[0-3])*)$`)
	toFiles = regexp.MustCompile(`(^|:)[1-3]`) // at least one stream goes to files
)

// shellSigns are characters that only a shell interprets.
const shellSigns = "|&;<>()$`\\\"'*?[]#~\n{}"

// settleCommand turns a job to train with a --job_command into one that runs a program. Other jobs
// to train get no program.
func (c *Command) settleCommand(p *problems) {
	switch words := strings.Fields(c.jobCommand); {
	case c.jobCommand == "" || c.Job.Type != Train && c.Job.Type != Run:
	case len(c.Job.Program.Command) > 0:
		p.check(false, setting("job_command", c.jobCommand),
			"the program is %s already; remove one of the two", c.Job.Program.Command[0])
	case strings.ContainsAny(c.jobCommand, shellSigns), len(words) > 0 && strings.Contains(words[0], "="):
		// A=b program
		c.Job.Type, c.Job.Program.Command = Run, []string{"/bin/sh", "-c", c.jobCommand}
	default:
		c.Job.Type, c.Job.Program.Command = Run, words
	}
	if !c.Job.Runs() {
		c.Job.Program = Program{}
	}
}

// settleProgram sets the defaults of a program's job, such as the script's name as that of the job.
func (c *Command) settleProgram() {
	j := c.Job
	for _, of := range []*string{&j.ModelDef, &j.ModelZoo, &j.TrainingData, &j.ValidationData,
		&j.PredictionData, &j.PredictionOutputs, &j.Output, &j.CheckpointDir, &j.CheckpointDirForInit} {
		// settings of a model, about which noteFlagsWithoutEffect adds a note
		*of = ""
	}
	if j.Name == "" && len(j.Program.Command) > 0 {
		j.Name = nameOf(j.Program.Command, j.Program.Module)
	}
}

var unnamable = regexp.MustCompile(`[^a-z0-9]+`)

// nameOf returns the default name of a job from its program: "main" of "python3 -u train/main.py"
// and of "python3 -m train.main".
func nameOf(command []string, module bool) string {
	word := command[0]
	if IsPython(word) {
		for i, arg := range command[1:] {
			if !strings.HasPrefix(arg, "-") {
				word, module = arg, command[i] == "-m"
				break
			}
		}
	}
	if module {
		word = word[strings.LastIndexByte(word, '.')+1:]
	}
	word, _, _ = strings.Cut(path.Base(source.Shown(word)), ".")
	name := strings.Trim(unnamable.ReplaceAllString(strings.ToLower(word), "-"), "-")
	if name == "" {
		return "program"
	}
	return strings.TrimRight(name[:min(len(name), MaxName)], "-")
}

var python = regexp.MustCompile(`^python([0-9](\.[0-9]+)?)?$`)

// launchers are the modules that start a script's processes, as the agent does, by the title of
// each.
var launchers = map[string]string{
	"torch.distributed.run":    "torch.distributed.run",
	"torch.distributed.launch": "torch.distributed.launch", "accelerate.commands.launch": "accelerate launch",
}

// Launcher returns the launcher that the command calls, such as "torchrun"; "" if it calls none. A
// job's command is the script itself.
func (g *Program) Launcher() string {
	words := g.Command
	switch {
	case len(words) == 0:
		return ""
	case g.Module:
		return launchers[words[0]]
	case path.Base(words[0]) == "torchrun":
		return "torchrun"
	case path.Base(words[0]) == "accelerate" && len(words) > 1 && words[1] == "launch":
		return "accelerate launch"
	case !IsPython(words[0]):
		return ""
	}
	for i, word := range words[1:] { // the interpreter's own options
		if word == "-m" && i+2 < len(words) {
			return launchers[words[i+2]]
		} else if !strings.HasPrefix(word, "-") {
			return ""
		}
	}
	return ""
}

// IsPython reports whether a word is the name of a Python interpreter.
func IsPython(word string) bool { return python.MatchString(path.Base(word)) }

// gpu is the Kubernetes resource of --gpus.
const gpu = "nvidia.com/gpu"

// settleGPUs adds the GPUs of --gpus to the resource request of workers. A
// limit that is not set equals the request.
func (j *Job) settleGPUs() {
	if n := j.Program.GPUs; n > 0 && j.Worker.Request[gpu] == "" && j.Worker.Limit[gpu] == "" {
		asked := maps.Clone(j.Worker.Request)
		if asked == nil {
			asked = make(Resources)
		}
		asked[gpu] = strconv.Itoa(n)
		j.Worker.Request = asked
	}
}

// checkProgramPods refuses settings that pods with a program cannot have.
func (j *Job) checkProgramPods(p *problems) {
	g := &j.Program
	p.given(j.Image != "", setting("image_name"),
		"name an image that has what the program needs, as pytorch/pytorch, and with %v one that "+
			"has elasticdl", setting("agent_image_name"))
	p.check(g.LogDir != "" || !toFiles.MatchString(g.Redirects), setting("redirects", g.Redirects),
		"without %v the output would be deleted with the pods; give a directory on a %v, or %v, by "+
			"which the workers' logs have it, too",
		setting("log_dir"), setting("volume"), setting("tee"))
	p.check(g.AgentImage == "" || imageName.MatchString(g.AgentImage),
		setting("agent_image_name", g.AgentImage), "expected an image, as registry.example/elasticdl:mnist")
	j.checkCode(p)
	asks := j.Worker.Request[gpu] != "" || j.Worker.Limit[gpu] != ""
	p.check(g.Processes != "gpu" || asks, setting("nproc_per_node", "gpu"),
		"workers ask for no GPU; give %v", setting("gpus"))
	for _, v := range j.Volumes {
		p.check(g.AgentImage == "" || path.Clean(v.MountPath) != AgentDir, setting("volume", v),
			"elasticdl is at that mount_path; give another")
	}
}

// AgentDir is the directory of the elasticdl binary in a worker with a user's image.
const AgentDir = "/elasticdl-bin"
