// Command kernel writes the assembly of trainer/train/nn/kernel/avx and its Go declarations:
//
//	go run -C <root>/tools/gen ./kernel <folder of the package>
//
// Every function is written once, over vectors of the machine's width (machine.go), and generated
// for AVX-512 and for AVX2 with FMA.
package main

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kernel FOLDER")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "kernel:", err)
		os.Exit(1)
	}
}

func generate(folder string) error {
	for _, isa := range []isa{avx512, avx2} {
		for _, part := range []struct {
			name string
			emit func(*machine)
		}{{"tile", tiles}, {"vector", vectors}, {"winograd", winograd}} {
			m := newMachine(isa)
			part.emit(m)
			if err := write(m.Context, filepath.Join(folder, part.name+"_"+isa.name+"_amd64")); err != nil {
				return fmt.Errorf("%s for %s: %w", part.name, isa.name, err)
			}
		}
	}
	c := build.NewContext()
	pause(c)
	if err := write(c, filepath.Join(folder, "pause_amd64")); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	source, err := format.Source(dispatch())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "tile_amd64.go"), source, 0o666)
}

// write compiles the functions of c to path.s and path.go.
func write(c *build.Context, path string) error {
	file, err := c.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return err
	}
	config := printer.Config{Name: generator, Pkg: "avx"}
	for ending, p := range map[string]printer.Printer{
		".s": printer.NewGoAsm(config), ".go": printer.NewStubs(config),
	} {
		text, err := p.Print(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path+ending, text, 0o666); err != nil {
			return err
		}
	}
	return nil
}

const generator = "tools/gen/kernel"
