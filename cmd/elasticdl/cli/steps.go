package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// stepProgress is the progress of one step of a long operation.
type stepProgress struct {
	// "push", "write train"
	Step string
	// Done and Total are in bytes; false: they are counts
	Bytes bool
	// Total is 0 while it is not known
	Done, Total int64
}

// steps shows the steps of a long operation: as bars on a terminal, otherwise as a line each.
type steps struct {
	out  io.Writer
	step string
	bar  *progressbar.ProgressBar // nil if not on a terminal
}

func (b *steps) show(p stepProgress) {
	if p.Step != b.step {
		b.close()
		b.step = p.Step
		if isTerminal(b.out) {
			total := p.Total
			if total == 0 {
				total = -1 // not known: a spinner
			}
			b.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(b.out),
				progressbar.OptionSetDescription(p.Step),
				progressbar.OptionShowBytes(p.Bytes), progressbar.OptionShowCount(),
				progressbar.OptionThrottle(100*time.Millisecond),
				progressbar.OptionFullWidth(), progressbar.OptionSetSpinnerChangeInterval(0))
		} else {
			fmt.Fprintln(b.out, p.Step)
		}
	}
	if b.bar != nil {
		if p.Total > 0 {
			b.bar.ChangeMax64(p.Total)
		}
		b.bar.Set64(p.Done)
	}
}

// close ends the bar of the last step.
func (b *steps) close() {
	if b.bar != nil {
		b.bar.Exit()
		fmt.Fprintln(b.out)
	}
	b.bar = nil
}
