package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	secret := setting("env_secret")
	refuse := func(about mention, found string, instead mention, orElse string) {
		p.check(false, about, "%s; it would be stored in plain text in the job's ConfigMap and "+
			"pods: put it into a Secret and give %v%s, or %v if it is none",
			found, instead, orElse, setting("allow_plain_secrets"))
	}
	for _, name := range slices.Sorted(maps.Keys(j.Envs)) {
		if why := PlainSecret(name, j.Envs[name]); why != "" {
			refuse(setting("envs"), name+" looks like a secret ("+why+")",
				setting("env_secret", name+"=SECRET/KEY"), "")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.DataReaderParams)) {
		if why := PlainSecret(name, j.DataReaderParams[name]); why != "" {
			refuse(setting("data_reader_params"), name+" looks like a secret ("+why+")", secret, "")
		}
	}
	for _, found := range plainInCommand(j.Command) {
		refuse(theProgram(), found, secret, "")
	}
	var spec any
	if json.Unmarshal([]byte(j.ClusterSpecJSON), &spec) == nil {
		for _, found := range PlainSecrets(spec) {
			refuse(setting("cluster_spec_json"), found, secret, ", or valueFrom with a secretKeyRef")
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
		if why := PlainSecret("", f.bind(c).get()); why != "" {
			refuse(setting(f.Name), "it looks like a secret ("+why+")", secret, "")
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
		if why := PlainSecret(name, value); why != "" && (i > 0 || !strings.Contains(word, "://")) {
			found = append(found, fmt.Sprintf("word %d looks like a secret (%s)", i+1, why))
		}
	}
	return found
}

// PlainSecrets returns the texts in a JSON value that look like secrets, each as "path (why)". In
// pairs of name and value, such as variables of containers, the name counts, too.
func PlainSecrets(v any) (found []string) {
	var look func(path, name string, v any)
	look = func(path, name string, v any) {
		switch v := v.(type) {
		case string:
			if why := PlainSecret(name, v); why != "" {
				found = append(found, fmt.Sprintf("%s looks like a secret (%s)", path, why))
			}
		case []any:
			for i, e := range v {
				look(path+"["+strconv.Itoa(i)+"]", "", e)
			}
		case map[string]any:
			of, _ := v["name"].(string)
			for _, key := range slices.Sorted(maps.Keys(v)) {
				named := ""
				if key == "value" {
					named = of
				}
				look(strings.TrimPrefix(path+"."+key, "."), named, v[key])
			}
		}
	}
	look("", "", v)
	return found
}

// PlainSecret returns why a value and its name look like a secret, "" if they do not. The name may
// be "". Harmless values, such as numbers, booleans and paths of files, are never secrets. The
// result never contains a part of the value.
func PlainSecret(name, value string) (why string) {
	for _, form := range secretForms {
		if form.is.MatchString(value) {
			return form.name
		}
	}
	if harmless.MatchString(value) {
		return ""
	}
	words := strings.FieldsFunc(strings.ToUpper(camel.ReplaceAllString(name, "${1}_${2}")), func(r rune) bool {
		return !('A' <= r && r <= 'Z' || '0' <= r && r <= '9')
	})
	if len(words) == 0 {
		return ""
	}
	last := words[len(words)-1]
	if secretWord.MatchString(last) || last == "KEY" && len(words) > 1 && secretKind.MatchString(words[len(words)-2]) {
		return "by its name"
	}
	return ""
}

var (
	// secretWord matches the last word of a secret's name: HF_TOKEN, PGPASSWORD.
	// TOKENIZERS_PARALLELISM, MAX_TOKENS and TOKEN_FILE do not.
	secretWord = regexp.MustCompile(
		`^(.*PASSWORD|.*PASSWD|PASSPHRASE|PASS|PWD|TOKEN|.*SECRET|CREDENTIALS?|.*APIKEY|ACCESSKEY|SECRETKEY|PRIVATEKEY)$`)
	// secretKind matches the word before KEY: WANDB_API_KEY, AWS_SECRET_ACCESS_KEY.
	secretKind = regexp.MustCompile(`^(API|ACCESS|SECRET|PRIVATE|AUTH|ENCRYPTION|SIGNING|ACCOUNT|MASTER|STORAGE)$`)
	camel      = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	// harmless matches values that cannot be secrets: nothing, a number, a boolean, a path, a
	// reference to a variable.
	harmless = regexp.MustCompile(
		`^\s*$|^[-+]?[0-9]*\.?[0-9]+$|^(?i:true|false|yes|no|on|off|none|null)$|^~?\.{0,2}/|^[a-z][a-z0-9+.-]*://|^\$\([A-Za-z_][A-Za-z0-9_]*\)$|^\$\{?[A-Za-z_][A-Za-z0-9_]*\}?$`)
)

// secretForms match values that are secrets, whatever their name.
var secretForms = []struct {
	name string
	is   *regexp.Regexp
}{
	{"a private key", regexp.MustCompile(`-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----`)},
	{"an access key of AWS", regexp.MustCompile(`\b(AKIA|ASIA)[0-9A-Z]{16}\b`)},
	{"an API key of Google", regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{35}`)},
	{"a token of GitHub", regexp.MustCompile(`\b(gh[pousr]_[0-9A-Za-z]{36}|github_pat_[0-9A-Za-z_]{40})`)},
	{"a token of GitLab", regexp.MustCompile(`\bglpat-[0-9A-Za-z_-]{20}`)},
	{"a token of Hugging Face", regexp.MustCompile(`\bhf_[0-9A-Za-z]{30}`)},
	{"a token of Slack", regexp.MustCompile(`\bxox[abprs]-[0-9A-Za-z-]{10}`)},
	{"an API key", regexp.MustCompile(`\bsk-[0-9A-Za-z_-]{20}`)},
	{"a JSON Web Token", regexp.MustCompile(`\beyJ[0-9A-Za-z_-]{8,}\.eyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]*`)},
	{"a URL with a password", regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#"'@:]*:[^\s/?#"'@$][^\s/?#"'@]*@`)},
	{"a signed URL", regexp.MustCompile(
		`(?i)://[^\s?]+\?([^\s]*&)?(X-Amz-Signature|X-Amz-Security-Token|X-Goog-Signature|Signature|sig)=[^&\s]{8}`)},
}
