package program

import (
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// versionProbe prints the version of torch without importing it.
const versionProbe = `import importlib.util,os
v={}
exec(open(os.path.join(importlib.util.find_spec("torch").submodule_search_locations[0],"version.py")).read(),v)
print(v["__version__"])`

// versionLimit is the time limit of the probe, enough for an interpreter from a slow image.
const versionLimit = time.Minute

// torchVersion is the version of PyTorch; the zero value: not known.
type torchVersion struct{ major, minor int }

var versionText = regexp.MustCompile(`^(\d+)\.(\d+)`)

// probeTorch asks the program's interpreter for its version of torch. For a program that is not a
// Python script the version is unknown.
func (p *Program) probeTorch() torchVersion {
	if !p.command.python {
		return torchVersion{}
	}
	ctx, cancel := context.WithTimeout(p.ctx, versionLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.command.path, "-c", versionProbe)
	cmd.Args[0], cmd.Dir, cmd.Env, cmd.WaitDelay = p.command.args[0], p.options.Dir,
		p.options.base().list(), time.Second
	out, err := cmd.Output()
	if err != nil { // without torch, most likely
		return torchVersion{}
	}
	return parseTorchVersion(string(out))
}

func parseTorchVersion(text string) (v torchVersion) {
	if m := versionText.FindStringSubmatch(text); m != nil {
		v.major, _ = strconv.Atoi(m[1]) // digits
		v.minor, _ = strconv.Atoi(m[2])
	}
	return v
}

// handling returns the names of the variable that enables the handling of NCCL's errors: PyTorch
// 2.2 and later warn if the older one is set.
func (v torchVersion) handling() []string {
	const older, newer = "NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"
	switch {
	case v == torchVersion{}:
		return []string{older, newer}
	case v.major > 2 || v.major == 2 && v.minor >= 2:
		return []string{newer}
	}
	return []string{older}
}
