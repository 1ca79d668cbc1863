package program

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// environ is an environment by name.
type environ map[string]string

func parseEnviron(list []string) environ {
	e := make(environ, len(list))
	for _, entry := range list {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			e[name] = value
		}
	}
	return e
}

// list returns the environment in the form of os.Environ, sorted.
func (e environ) list() []string {
	list := make([]string, 0, len(e))
	for _, name := range slices.Sorted(maps.Keys(e)) {
		list = append(list, name+"="+e[name])
	}
	return list
}

// with returns the environment with the variables of another, which win.
func (e environ) with(other environ) environ {
	all := maps.Clone(e)
	maps.Copy(all, other)
	return all
}

// add sets the name unless it is set.
func (e environ) add(name, value string) {
	if _, ok := e[name]; !ok {
		e[name] = value
	}
}

// has reports whether one of the names is set.
func (e environ) has(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, ok := e[name]; return ok })
}

// threadsVariable names the variable with the number of threads of a process, which OpenMP reads
// when it is loaded.
const threadsVariable = "OMP_NUM_THREADS"

// base returns the environment that the fork server and all processes share: the user's
// environment, and defaults that libraries read when they are loaded.
func (o *Options) base() environ {
	e := parseEnviron(o.Env)
	delete(e, ErrorFileVariable)                         // the agent's own is not the processes'
	if pwd, ok := e["PWD"]; ok && !sameDir(pwd, o.Dir) { // that of a shell in another directory
		e["PWD"] = o.Dir
	}
	if o.Threads > 0 {
		e.add(threadsVariable, strconv.Itoa(o.Threads))
	}
	return e
}

// sameDir reports whether two paths are of one directory.
func sameDir(a, b string) bool {
	of, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(of, other)
}

// setsThreads reports whether the user has set the number of threads.
func (o *Options) setsThreads() bool {
	_, ok := parseEnviron(o.Env)[threadsVariable]
	return ok
}

// ErrorFileVariable names the file to which a process writes why it failed. That of a program's
// process is below the log directory of the run.
const ErrorFileVariable = "TORCHELASTIC_ERROR_FILE"

// environ returns the environment of one process: torchrun's contract.
func (o *Options) environ(p Position, local int, errorFile string, torch torchVersion) environ {
	e := o.base()
	if p.Threads > 0 && !o.setsThreads() {
		e[threadsVariable] = strconv.Itoa(p.Threads)
	}
	if !e.has(torchVersion{}.handling()) {
		for _, name := range torch.handling() {
			e[name] = "1"
		}
	}
	rank := p.FirstRank + local
	maps.Copy(e, environ{
		"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(p.WorldSize),
		"LOCAL_RANK": strconv.Itoa(local), "LOCAL_WORLD_SIZE": strconv.Itoa(p.LocalSize),
		"GROUP_RANK": strconv.Itoa(p.GroupRank), "GROUP_WORLD_SIZE": strconv.Itoa(p.GroupWorldSize),
		"ROLE_RANK": strconv.Itoa(rank), "ROLE_WORLD_SIZE": strconv.Itoa(p.WorldSize), "ROLE_NAME": o.Role,
		"MASTER_ADDR": p.MasterAddr, "MASTER_PORT": strconv.Itoa(p.MasterPort),
		"TORCHELASTIC_RESTART_COUNT": strconv.Itoa(p.Restarts),
		"TORCHELASTIC_MAX_RESTARTS":  strconv.Itoa(cmp.Or(p.MaxRestarts, o.MaxRestarts)),
		"TORCHELASTIC_RUN_ID":        o.RunID, "TORCHELASTIC_USE_AGENT_STORE": "True", ErrorFileVariable: errorFile,
	})
	if p.Interface != "" {
		e.add("GLOO_SOCKET_IFNAME", p.Interface)
		e.add("NCCL_SOCKET_IFNAME", p.Interface)
	}
	if p.Env != nil {
		maps.Copy(e, parseEnviron(p.Env(local)))
	}
	return e
}

// own are variables with a value of their own for each process, or each world. A module that reads
// one while it is imported must not be imported before a process has it.
var own = []string{
	"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
	"ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
	"TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", ErrorFileVariable,
}

// readAtStart are the prefixes of variables that the interpreter, the loader or libraries read
// once, when they start: the fork server must have the values for its children. TORCH_NCCL_* is
// read when a group is made.
var readAtStart = []string{
	"OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "LD_", "MALLOC_", "GLIBC_",
	"PYTHON", "TORCH_", "PYTORCH_", "ATEN_",
	"TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_",
	"PATH", "HOME", "LANG", "LC_",
}

// atStart returns the part of the environment that is read once.
func (e environ) atStart() environ {
	part := environ{}
	for name, value := range e {
		if !strings.HasPrefix(name, "TORCH_NCCL_") && slices.ContainsFunc(readAtStart, func(begin string) bool {
			return strings.HasPrefix(name, begin)
		}) {
			part[name] = value
		}
	}
	return part
}

// difference returns the name of a variable whose values differ, "" if there is none.
func (e environ) difference(other environ) string {
	var name string
	for _, pair := range [][2]environ{{e, other}, {other, e}} {
		for n, value := range pair[0] {
			if v, ok := pair[1][n]; (!ok || v != value) && (name == "" || n < name) {
				name = n
			}
		}
	}
	return name
}

// prefix returns the text before each line of the process on the console: torchrun's, or the user's
// template.
func (o *Options) prefix(env environ, rank, local int) string {
	template := cmp.Or(env["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"], "[${role_name}${local_rank}]:")
	values := []string{"role_name", o.Role, "local_rank", strconv.Itoa(local), "rank", strconv.Itoa(rank)}
	pairs := []string{"$$", "$"}
	for _, braces := range [][2]string{{"${", "}"}, {"$", ""}} {
		for i := 0; i < len(values); i += 2 {
			pairs = append(pairs, braces[0]+values[i]+braces[1], values[i+1])
		}
	}
	return strings.NewReplacer(pairs...).Replace(template)
}
