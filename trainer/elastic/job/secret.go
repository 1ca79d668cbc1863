package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/secret"
)

// SecretRef names one value of a Kubernetes Secret. In JSON it is the text "SECRET/KEY".
type SecretRef struct {
	Secret string // name, in the job's namespace
	Key    string // key of the value
}

// ParseSecretRef reads "SECRET/KEY".
func ParseSecretRef(s string) (SecretRef, error) {
	secret, key, ok := strings.Cut(strings.TrimSpace(s), "/")
	if !ok || !dnsSubdomain(secret) || len(key) > maxSubdomain || !secretKey.MatchString(key) {
		return SecretRef{}, fmt.Errorf("expected SECRET/KEY, the name of a Secret and of one of its keys, found %q", s)
	}
	return SecretRef{secret, key}, nil
}

// secretKey matches a key of a Kubernetes Secret.
var secretKey = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)

func (r SecretRef) String() string { return r.Secret + "/" + r.Key }

// MarshalText is [SecretRef.String].
func (r SecretRef) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is [ParseSecretRef].
func (r *SecretRef) UnmarshalText(text []byte) (err error) {
	*r, err = ParseSecretRef(string(text))
	return err
}

// ParseEnvSecrets reads "NAME=SECRET/KEY;OTHER=SECRET/KEY".
func ParseEnvSecrets(s string) (map[string]SecretRef, error) {
	refs := make(map[string]SecretRef)
	err := eachPair(s, ";", func(name, value string) error {
		ref, err := ParseSecretRef(value)
		_, twice := refs[name]
		switch {
		case !envName.MatchString(name):
			return fmt.Errorf("%q: expected the name of a variable", name)
		case twice:
			return fmt.Errorf("%s occurs twice", name)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
		refs[name] = ref
		return nil
	})
	if err != nil {
		return nil, err
	}
	return refs, nil
}

// envSecrets returns the value of a flag that may occur several times, and adds variables.
func envSecrets(p *map[string]SecretRef) value {
	set := func(s string) error {
		refs, err := ParseEnvSecrets(s)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(refs)) {
			if _, twice := (*p)[name]; twice {
				return fmt.Errorf("%s occurs twice", name)
			}
		}
		if *p == nil && len(refs) > 0 {
			*p = make(map[string]SecretRef)
		}
		maps.Copy(*p, refs)
		return nil
	}
	get := func() string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(*p)) {
			parts = append(parts, name+"="+(*p)[name].String())
		}
		return strings.Join(parts, ";")
	}
	return value{kind: "NAME=SECRET/KEY;...", at: p, set: set, get: get}
}

// names returns the value of a list of names of Secrets. The flag may occur several times.
func names(p *[]string) value {
	set := func(s string) error {
		for name := range strings.SplitSeq(s, ";") {
			switch name = strings.TrimSpace(name); {
			case name == "":
			case !dnsSubdomain(name):
				return fmt.Errorf("%q: expected the name of a Secret", name)
			case slices.Contains(*p, name):
				return fmt.Errorf("%s occurs twice", name)
			default:
				*p = append(*p, name)
			}
		}
		return nil
	}
	return value{kind: "NAME;...", at: p, set: set, get: func() string { return strings.Join(*p, ";") }}
}

// checkSecrets refuses invalid names of Secrets, on a cluster and on one machine.
func (j *Job) checkSecrets(p *problems) {
	for _, name := range slices.Sorted(maps.Keys(j.EnvSecrets)) {
		ref := j.EnvSecrets[name]
		_, err := ParseSecretRef(ref.String())
		is := setting("env_secret", name+"="+ref.String())
		p.check(err == nil, is, "%v", err)
		p.check(envName.MatchString(name), is, "expected the name of a variable")
		p.check(!ReservedEnv(name), is, "the processes have a variable of that name already")
		_, twice := j.Envs[name]
		p.check(!twice, is, "%v has %s, too; remove one of the two", setting("envs"), name)
	}
	for i, name := range j.ImagePullSecrets {
		p.check(dnsSubdomain(name), setting("image_pull_secret", name), "expected the name of a Secret")
		p.check(!slices.Contains(j.ImagePullSecrets[:i], name), setting("image_pull_secret", name), "it occurs twice")
	}
}

// checkPlain refuses what looks like a secret where everybody would read it who may read the job:
// in its ConfigMap and its pods.
func (j *Job) checkPlain(p *problems) {
	if j.AllowPlainSecrets {
		return
	}
	byName := setting("env_secret")
	refuse := func(about mention, found string, instead mention, orElse string) {
		p.check(false, about, "%s; it would be stored in plain text in the job's ConfigMap and "+
			"pods: put it into a Secret and give %v%s, or %v if it is none",
			found, instead, orElse, setting("allow_plain_secrets"))
	}
	for _, name := range slices.Sorted(maps.Keys(j.Envs)) {
		if why := secret.Looks(name, j.Envs[name]); why != "" {
			refuse(setting("envs"), name+" looks like a secret ("+why+")",
				setting("env_secret", name+"=SECRET/KEY"), "")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.DataReaderParams)) {
		if why := secret.Looks(name, j.DataReaderParams[name]); why != "" {
			refuse(setting("data_reader_params"), name+" looks like a secret ("+why+")", byName, "")
		}
	}
	for _, found := range plainInCommand(j.Command) {
		refuse(theProgram(), found, byName, "")
	}
	var spec any
	if json.Unmarshal([]byte(j.ClusterSpecJSON), &spec) == nil {
		for _, found := range secret.Find(spec) {
			refuse(setting("cluster_spec_json"), found, byName, ", or valueFrom with a secretKeyRef")
		}
	}
	c := NewCommand(j.Type)
	c.Job = j
	for i := range flags {
		f := &flags[i]
		if field := f.Field(); field == "" ||
			slices.Contains([]string{"envs", "dataReaderParams", "clusterSpecJSON"}, field) {
			continue
		}
		if why := secret.Looks("", f.bind(c).get()); why != "" {
			refuse(setting(f.Name), "it looks like a secret ("+why+")", byName, "")
		}
	}
}

// plainInCommand returns the words of a program that look like secrets: --password=x, --password x,
// PASSWORD=x, and values with the form of a secret. checkCode checks the URL of the program.
func plainInCommand(words []string) (found []string) {
	before := ""
	for i, word := range words {
		name, value, pair := strings.Cut(word, "=")
		if !pair || strings.Contains(name, "://") {
			name, value = before, word
		}
		before = ""
		if strings.HasPrefix(word, "-") && !pair {
			before = word
			continue
		}
		name = strings.TrimLeft(name, "-")
		if why := secret.Looks(name, value); why != "" && (i > 0 || !strings.Contains(word, "://")) {
			found = append(found, fmt.Sprintf("word %d looks like a secret (%s)", i+1, why))
		}
	}
	return found
}
