package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Compile builds the main package in a directory as a static binary for each platform, in the
// directory out. elasticdl itself gets the agent, see [AddAgent]: programs have it from images
// without models. An error of the compiler is returned as Go prints it.
func Compile(ctx context.Context, dir, out string, platforms []string, progress func(Progress)) ([]Binary, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return nil, errors.New("compiling needs Go, which is not in your PATH: https://go.dev/dl has it")
	}
	if err := resolve(ctx, dir, progress); err != nil {
		return nil, err
	}
	program, err := output(command(ctx, dir, "list", "-f", "{{.ImportPath}}", "."))
	if err != nil {
		return nil, fmt.Errorf("read the package in %s: %w", dir, err)
	}
	var binaries []Binary
	for _, platform := range platforms {
		path := filepath.Join(out, strings.ReplaceAll(platform, "/", "-"))
		if err := compile(ctx, dir, ".", path, platform, progress); err != nil {
			return nil, err
		}
		if program == mainPackage {
			if err := compile(ctx, dir, agentPackage, path+"-agent", platform, progress); err != nil {
				return nil, err
			}
			if err := AddAgent(path, path+"-agent", path); err != nil {
				return nil, fmt.Errorf("add the agent to %s: %w", path, err)
			}
		}
		b, err := Inspect(path)
		if err != nil {
			return nil, fmt.Errorf("compile %s: %w", dir, err)
		}
		binaries = append(binaries, b)
	}
	return binaries, nil
}

// resolve writes go.sum for a module that has none yet, such as a new one.
func resolve(ctx context.Context, dir string, progress func(Progress)) error {
	module, err := output(command(ctx, dir, "list", "-m", "-f", "{{.Dir}}"))
	if err != nil {
		return fmt.Errorf("read the module of %s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(module, "go.sum")); err == nil {
		return nil
	}
	progress(Progress{Step: "go mod tidy in " + module})
	if _, err := output(command(ctx, module, "mod", "tidy")); err != nil {
		return fmt.Errorf("go mod tidy in %s: %w", module, err)
	}
	return nil
}

// compile builds a main package, as named in dir, for one platform. Its progress counts the
// packages that Go compiles; their total is not known, because it depends on Go's cache.
func compile(ctx context.Context, dir, program, path, platform string, progress func(Progress)) error {
	flags, err := output(command(ctx, dir, "env", "GOFLAGS"))
	if err != nil {
		return fmt.Errorf("read GOFLAGS: %w", err)
	}
	// The binary depends only on what is linked: not on the directory, the commit, or the ids of
	// Go's cache.
	cmd := command(ctx, dir, "build", "-v", "-trimpath", "-tags="+tags(flags), "-buildvcs=false",
		"-ldflags=-s -w -buildid=", "-o", path, program)
	system, arch, variant := splitPlatform(platform)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	if variant != "" {
		cmd.Env = append(cmd.Env, "GOARM="+strings.TrimPrefix(variant, "v"))
	}
	messages, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	step := Progress{Step: "compile for " + platform}
	progress(step)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go: %w", err)
	}
	var said []string
	for lines := bufio.NewScanner(messages); lines.Scan(); {
		line := lines.Text()
		if isPackage(line) {
			step.Done++
			progress(step)
		} else {
			said = append(said, line)
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("compile %s for %s: %w", dir, platform, verdict(ctx, strings.Join(said, "\n"), err))
	}
	return nil
}

// isPackage reports whether a line of go build -v is the path of a package.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:#")
}

// Tags are the build tags of elasticdl, with which it is half as large.
//
//   - disable_grpc_modules leaves out the gRPC of Google Cloud Storage's client, which uses HTTP.
//   - grpcnotrace leaves out gRPC's pages for debugging. Their templates look up methods by
//     reflection: the linker would keep all exported methods of the program.
const Tags = "disable_grpc_modules,grpcnotrace"

// tags returns the build tags of a binary: [Tags] and those of GOFLAGS, which a -tags flag alone
// would replace.
func tags(goflags string) string {
	all := Tags
	for flag := range strings.FieldsSeq(goflags) {
		name, value, _ := strings.Cut(strings.TrimLeft(strings.Trim(flag, `'"`), "-"), "=")
		if name == "tags" && value != "" {
			all = Tags + "," + value // the last one counts
		}
	}
	return all
}

func command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	return cmd
}

// output runs a command and returns what it prints, without white space around it.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", verdict(context.Background(), string(exit.Stderr), err)
	}
	return strings.TrimSpace(string(out)), err
}

// verdict returns the error of a failed command, with what it printed as the reason.
func verdict(ctx context.Context, said string, err error) error {
	switch said = strings.TrimSpace(said); {
	case ctx.Err() != nil:
		return ctx.Err()
	case said != "":
		return errors.New(said + moved(said))
	}
	return err
}

// formerly matches the import path that a package for users' models had before trainer/train.
var formerly = regexp.MustCompile(`\bgithub\.com/elasticdl/elasticdl/trainer/((?:zoo|nn|optim|data|recordio)\b[\w/]*)`)

// moved names the new import paths of the packages that what Go prints calls by their former ones,
// one a line.
func moved(said string) string {
	paths := make(map[string]bool)
	for _, match := range formerly.FindAllStringSubmatch(said, -1) {
		paths[match[1]] = true
	}
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		fmt.Fprintf(&text, "\nimport github.com/elasticdl/elasticdl/trainer/train/%s in place of "+
			"trainer/%s, which has moved", path, path)
	}
	return text.String()
}
