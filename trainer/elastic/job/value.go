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

// value parses and holds a flag's text: set reads it, get writes it as a user would.
type value struct {
	// what the help text shows: number, text, ...
	kind string
	// a pointer to what it sets
	at  any
	set func(string) error
	get func() string
	// it takes but the default
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

// modelFile is a model named by its source file: "zoo/mnist_functional_api.py" is
// mnist_functional_api.
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

// optionalNumber is a number that differs from its zero by having been given.
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

// optionalDuration is a duration that differs from its zero by having been given.
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

// quantity is one resource of several, for the older flags --worker_cpu_request and its like.
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

// memory is a quantity of bytes, 0 for none.
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

// both sets two fields from one flag.
func both(a, b value) value {
	set := func(s string) error {
		if err := a.set(s); err != nil {
			return err
		}
		return b.set(s)
	}
	return value{kind: a.kind, at: a.at, set: set, get: a.get}
}

// onlyDefault takes the one text that the built-in models have; another is refused as not there
// yet.
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
