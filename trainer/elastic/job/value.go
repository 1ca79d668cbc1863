package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// value binds a flag to a setting: set parses a text, and get formats the setting as a user would
// write it.
type value struct {
	// placeholder in the help text
	kind string
	// pointer to the setting
	at  any
	set func(string) error
	get func() string
	// it accepts the default only
	only bool
}

func text(p *string) value {
	return value{kind: "TEXT", at: p, set: func(s string) error {
		*p = s
		return nil
	}, get: func() string { return *p }}
}

func filePath(p *string) value {
	v := text(p)
	v.kind = "PATH"
	return v
}

// modelFile returns the value of a model that is named by its source file:
// "zoo/mnist_functional_api.py" is mnist_functional_api.
func modelFile(p *string) value {
	set := func(s string) error {
		*p = strings.TrimSuffix(path.Base(s), path.Ext(s))
		return nil
	}
	return value{kind: "PATH", at: p, set: set, get: func() string { return "" }}
}

func number(p *int) value {
	set := func(s string) error {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n > math.MaxInt32 || n < math.MinInt32 {
			return fmt.Errorf("expected a whole number")
		}
		*p = n
		return nil
	}
	return value{kind: "N", at: p, set: set, get: func() string { return strconv.Itoa(*p) }}
}

// list returns the value of a list of names, separated by commas.
func list(p *[]string) value {
	set := func(s string) error {
		*p = strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
		return nil
	}
	return value{kind: "NAME,...", at: p, set: set, get: func() string { return strings.Join(*p, ",") }}
}

// optionalNumber returns the value of a number for which nil means not given, unlike 0.
func optionalNumber(p **int) value {
	set := func(s string) error {
		n := 0
		if err := number(&n).set(s); err != nil {
			return err
		}
		*p = &n
		return nil
	}
	get := func() string {
		if *p == nil {
			return ""
		}
		return strconv.Itoa(**p)
	}
	return value{kind: "N", at: p, set: set, get: get}
}

func seed(p *uint64) value {
	set := func(s string) (err error) {
		if *p, err = strconv.ParseUint(s, 10, 64); err != nil {
			return fmt.Errorf("expected a whole number of 0 or more")
		}
		return nil
	}
	return value{kind: "N", at: p, set: set, get: func() string { return strconv.FormatUint(*p, 10) }}
}

func boolean(p *bool) value {
	set := func(s string) error {
		b, err := ParseBool(s)
		if err == nil {
			*p = b
		}
		return err
	}
	return value{kind: "", at: p, set: set, get: func() string { return strconv.FormatBool(*p) }}
}

func duration(p *Duration) value {
	return value{kind: "DURATION", at: p, set: func(s string) error {
		return p.UnmarshalText([]byte(s))
	}, get: func() string { return p.String() }}
}

// optionalDuration returns the value of a duration for which nil means not given, unlike 0.
func optionalDuration(p **Duration) value {
	set := func(s string) error {
		var d Duration
		if err := d.UnmarshalText([]byte(s)); err != nil {
			return err
		}
		*p = &d
		return nil
	}
	get := func() string {
		if *p == nil {
			return ""
		}
		return (*p).String()
	}
	return value{kind: "DURATION", at: p, set: set, get: get}
}

func strategy(p *Strategy) value {
	return value{kind: "NAME", at: p, set: func(s string) error {
		*p = Strategy(s)
		return nil
	}, get: func() string { return string(*p) }}
}

func resources(p *Resources) value {
	set := func(s string) error {
		r, err := ParseResources(s)
		if err != nil {
			return err
		}
		*p = r
		if len(r) == 0 {
			*p = nil
		}
		return nil
	}
	return value{kind: "RESOURCES", at: p, set: set, get: func() string { return p.String() }}
}

// quantity returns the value of one of several resources, for older flags such as
// --worker_cpu_request.
func quantity(p *Resources, name string) value {
	set := func(s string) error {
		key, q, err := resource(name, s)
		if err != nil {
			return err
		}
		if *p == nil {
			*p = Resources{}
		}
		(*p)[key] = q
		return nil
	}
	return value{kind: "QUANTITY", at: p, set: set, get: func() string { return (*p)[name] }}
}

// memory returns the value of a quantity of bytes; "0" means none.
func memory(p *string) value {
	set := func(s string) error {
		if *p = ""; s == "0" || s == "" {
			return nil
		}
		_, q, err := resource("memory", s)
		if err != nil {
			return errors.New("expected bytes like 512Mi or 4Gi")
		}
		*p = q
		return nil
	}
	return value{kind: "QUANTITY", at: p, set: set, get: func() string { return *p }}
}

func tolerations(p *[]Toleration) value {
	set := func(s string) error {
		t, err := ParseTolerations(s)
		if err == nil {
			*p = t
		}
		return err
	}
	get := func() string {
		parts := make([]string, len(*p))
		for i, t := range *p {
			parts[i] = t.String()
		}
		return strings.Join(parts, ";")
	}
	return value{kind: "TOLERATIONS", at: p, set: set, get: get}
}

func priority(p *Priority) value {
	set := func(s string) error {
		c, err := ParsePriority(s)
		if err == nil {
			*p = c
		}
		return err
	}
	return value{kind: "CLASS", at: p, set: set, get: func() string { return p.String() }}
}

func volumes(p *[]Volume) value {
	set := func(s string) error {
		v, err := ParseVolumes(s)
		if err == nil {
			*p = v
		}
		return err
	}
	get := func() string {
		parts := make([]string, len(*p))
		for i, v := range *p {
			parts[i] = v.String()
		}
		return strings.Join(parts, ";")
	}
	return value{kind: "VOLUMES", at: p, set: set, get: get}
}

func envs(p *map[string]string) value     { return pairs(p, ParseEnvs, ",") }
func selector(p *map[string]string) value { return pairs(p, ParseNodeSelector, ",") }
func params(p *map[string]string) value   { return pairs(p, ParseParams, "; ") }

func pairs(p *map[string]string, parse func(string) (map[string]string, error), sep string) value {
	set := func(s string) error {
		m, err := parse(s)
		if err != nil {
			return err
		}
		*p = m
		if len(m) == 0 {
			*p = nil
		}
		return nil
	}
	get := func() string {
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(*p)) {
			parts = append(parts, k+"="+(*p)[k])
		}
		return strings.Join(parts, sep)
	}
	return value{kind: "K=V" + sep + "...", at: p, set: set, get: get}
}

func object(p *string) value {
	set := func(s string) error {
		var m map[string]any
		if s != "" && (json.Unmarshal([]byte(s), &m) != nil || m == nil) {
			return fmt.Errorf("expected a JSON object")
		}
		*p = s
		return nil
	}
	return value{kind: "JSON", at: p, set: set, get: func() string { return *p }}
}

// both returns the value of a flag that sets two fields.
func both(a, b value) value {
	set := func(s string) error {
		if err := a.set(s); err != nil {
			return err
		}
		return b.set(s)
	}
	return value{kind: a.kind, at: a.at, set: set, get: a.get}
}

// onlyDefault returns the value of a flag that accepts only its default, which the built-in models
// have.
func onlyDefault(p *string) value {
	want := *p
	set := func(s string) error {
		if s != want {
			return fmt.Errorf("not available in this version yet: models are built in, with their " +
				"own functions; leave it out")
		}
		return nil
	}
	return value{kind: "NAME", at: p, set: set, get: func() string { return *p }, only: true}
}
