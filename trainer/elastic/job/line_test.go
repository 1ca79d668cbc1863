package job

import "strings"

// Parse gives a command what a command line says: flags as --name=value, and the words after them.
// Tests of other packages use test/flags.
func Parse(t Type, settings []string) (*Command, error) {
	c := NewCommand(t)
	return c, c.parse(settings)
}

func (c *Command) parse(settings []string) error {
	for i, arg := range settings {
		name, isFlag := strings.CutPrefix(arg, "--")
		switch {
		case c.Job.Runs() && arg == "--":
			c.Words(settings[i+1:])
			return c.Settle()
		case c.Job.Runs() && !strings.HasPrefix(arg, "-"):
			c.Words(settings[i:])
			return c.Settle()
		case !isFlag || name == "":
			c.unexpected(arg)
			continue
		}
		name, value, given := strings.Cut(name, "=")
		switch v := c.Value(name); {
		case given:
			v.Set(value)
		case v.Type() != "":
			v.Lacks()
		default:
			v.Set("true")
		}
	}
	return c.Settle()
}
