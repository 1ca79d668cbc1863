package job

import (
	"fmt"
	"strings"
)

// Help returns the help text of the flags for a type of job, by topic. Older flags share one
// paragraph.
func Help(t Type) string {
	var b strings.Builder
	var topic Topic
	var old []string
	for i := range flags {
		f := &flags[i]
		if f.Effect == Later || !f.With(t) {
			continue
		}
		if f.Topic == Remnants {
			old = append(old, "--"+f.Name)
			continue
		}
		if f.Topic != topic {
			topic = f.Topic
			fmt.Fprintf(&b, "\n%s:\n", topic)
		}
		f.help(&b, t)
	}
	fmt.Fprintf(&b, "\n%s, also accepted:\n%s", Remnants, wrap(strings.Join(old, " "), "  ", 100))
	return b.String()
}

func (f *Flag) help(b *strings.Builder, t Type) {
	head := "  --" + f.Name
	if f.Short != "" {
		head = "  -" + f.Short + ", --" + f.Name
	}
	if kind := f.Kind(); kind != "" {
		head += "=" + kind
	}
	usage := f.Usage
	if f.Name == "job_name" && t == Run {
		usage = strings.Replace(usage, "(required)", "[name of the script]", 1)
	}
	if f.Effect == Ignored {
		usage = "no effect: " + usage
	}
	if def := f.Default(t); def != "" && def != "0" && def != "0s" && def != "false" {
		usage += " [" + def + "]"
	}
	if f.Effect == Cluster {
		usage += " (Kubernetes)"
	}
	if len(f.Aliases) > 0 {
		usage += " (older: --" + strings.Join(f.Aliases, ", --") + ")"
	}
	if len(head) > 34 {
		fmt.Fprintf(b, "%s\n%36s%s\n", head, "", usage)
		return
	}
	fmt.Fprintf(b, "%-36s%s\n", head, usage)
}

// wrap breaks text at spaces into lines of at most width, each behind indent.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) > width && line != indent {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = indent
		}
		line += word + " "
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
	return b.String()
}
