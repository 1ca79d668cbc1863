package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Redactor removes secrets from texts and JSON values. In the place of each stands "[redacted
// KIND]". Values to remove everywhere are learned first, by [Redactor.Learn] and [Redactor.Known].
// The zero value is ready to use.
type Redactor struct {
	// names of values to remove everywhere
	values map[string]string
	// made of values; nil: not yet
	replace *strings.Replacer
	removed map[string]int
}

// Shortest values that are removed everywhere. Shorter ones occur in other words.
const (
	shortestSecret = 6 // of a name that is a secret's
	shortestOther  = 12
)

// Known makes the redactor remove a value everywhere. The value may be too short, or too usual, to
// be recognized; then it is ignored.
func (r *Redactor) Known(name, value string) {
	value = strings.TrimSpace(value)
	shortest := shortestOther
	switch {
	case Looks("", value) != "":
		shortest = shortestSecret
	case suspect(name):
		if shortest = shortestSecret; plain.MatchString(value) || place(name, value) {
			return
		}
	case harmless.MatchString(value), uid.MatchString(value) && strings.HasSuffix(name, "UID"),
		!digit.MatchString(value) || !letter.MatchString(value): // the name of a data set, a level
		return
	}
	for _, v := range append(strings.Split(value, "\n"), value) {
		if v = strings.TrimSpace(v); len(v) < shortest || pemBegin.MatchString(v) && !strings.Contains(v, "\n") {
			continue
		}
		for _, form := range spellings(v) {
			if r.values == nil {
				r.values = make(map[string]string)
			}
			if _, twice := r.values[form]; !twice {
				r.values[form], r.replace = name, nil
			}
		}
	}
}

var (
	// plain matches values that tell nothing, whatever their name. An address of a secret's name
	// may be that of a webhook.
	plain         = regexp.MustCompile(`^[-+]?[0-9]*\.?[0-9]+$|^(?i:true|false|yes|no|on|off|none|null)$`)
	uid           = regexp.MustCompile(`^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	digit, letter = regexp.MustCompile(`[0-9]`), regexp.MustCompile(`[A-Za-z]`)
	// suspects matches the end of names that may be those of a secret
	suspects = regexp.MustCompile(`(?i)(?:^|[^a-z])(?:` + secretNames + `|[a-z]*(?:token|secret)|_?auth|sas|pat)$`)
	shell    = regexp.MustCompile(`^-[a-z]*c$`)
	dashes   = regexp.MustCompile(`^--?[A-Za-z]`)
)

// suspect reports whether a name may be that of a secret.
func suspect(name string) bool {
	return (named(name) || suspects.MatchString(name)) && !counted.MatchString(name)
}

// spellings returns a value as programs write it: plainly, in JSON, in a URL, in base64.
func spellings(v string) []string {
	quoted, _ := json.Marshal(v) // a string has a JSON form
	var unescaped bytes.Buffer
	e := json.NewEncoder(&unescaped)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	all := []string{v, strings.Trim(string(quoted), `"`), strings.Trim(strings.TrimSpace(unescaped.String()), `"`),
		strings.ReplaceAll(v, "/", `\/`), strings.ReplaceAll(v, "'", `'\''`), strings.ReplaceAll(v, "'", `\'`),
		url.QueryEscape(v), url.PathEscape(v),
		strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(v)), "="),
		strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(v)), "=")}
	slices.Sort(all)
	return slices.Compact(all)
}

// Learn makes the redactor remove everywhere the secrets that a JSON value has by its structure.
func (r *Redactor) Learn(v any) { r.walk("", v, true) }

// Tree returns a JSON value, as [json.Unmarshal] makes it, without its secrets.
func (r *Redactor) Tree(v any) any { return r.walk("", v, false) }

// Removed returns how many values of each kind were removed.
func (r *Redactor) Removed() map[string]int { return maps.Clone(r.removed) }

func (r *Redactor) mask(what string) string {
	if r.removed == nil {
		r.removed = make(map[string]int)
	}
	r.removed[what]++
	return mark + what + "]"
}

// mark is the beginning of what replaces a secret.
const mark = "[redacted "

// masked reports whether a value was replaced already.
func masked(value string) bool { return strings.HasPrefix(value, strings.TrimSpace(mark)) }

// walk returns a value that is under a key, without its secrets; or only learns them.
func (r *Redactor) walk(key string, v any, learn bool) any {
	switch v := v.(type) {
	case string:
		return r.text(key, v, learn)
	case []any:
		return r.list(key, v, learn)
	case map[string]any:
		return r.fields(key, v, learn)
	case json.Number, float64:
		if suspect(key) && !ofToken.MatchString(key) && !learn {
			return r.mask(key)
		}
	}
	return v
}

// text returns a string that is under a key.
func (r *Redactor) text(key, v string, learn bool) string {
	if suspect(key) && !empty(v) {
		return r.value(key, v, learn)
	}
	return r.inner(key, v, learn)
}

// inner returns a string that is no secret as a whole.
func (r *Redactor) inner(key, v string, learn bool) string {
	if nested := strings.TrimSpace(v); strings.HasPrefix(nested, "{") || strings.HasPrefix(nested, "[") {
		d := json.NewDecoder(strings.NewReader(nested))
		d.UseNumber()
		var tree any
		if d.Decode(&tree) == nil && !d.More() {
			if tree = r.walk(key, tree, learn); learn {
				return v
			}
			return encode(tree)
		}
	}
	if learn {
		secrets(v, func(name, value string) { r.Known(words(name), strings.Trim(value, `\"' `)) })
		return v
	}
	return r.Text(v)
}

// words returns the name in what is before a secret in a text.
func words(before string) string {
	all := strings.FieldsFunc(before, func(c rune) bool {
		return c != '_' && c != '-' && (c > 'z' || c < '0' || !wordByte(byte(c)))
	})
	for _, word := range slices.Backward(all) {
		if suspect(word) {
			return strings.TrimLeft(word, "-")
		}
	}
	return "secret"
}

// encode returns a value as JSON in one line.
func encode(tree any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(tree); err != nil {
		return mark + "what is no JSON]"
	}
	return strings.TrimSpace(b.String())
}

// value returns what replaces the value of a name.
func (r *Redactor) value(name, v string, learn bool) string {
	if learn {
		r.Known(name, v)
		r.inner("", v, learn)
		return v
	}
	if masked(v) {
		return v
	}
	return r.mask(name)
}

// fields returns an object that is under a key: a variable of a container, a set of variables, or
// any other.
func (r *Redactor) fields(key string, m map[string]any, learn bool) map[string]any {
	out := make(map[string]any, len(m))
	of, isVariable := m["name"].(string)
	if key, ok := m["key"].(string); !isVariable && ok && suspect(key) {
		of, isVariable = key, true
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		value, isText := m[name].(string)
		switch {
		case isText && name == "value" && isVariable && !empty(value), isText && variables(key) && !empty(value):
			if name == "value" && isVariable {
				out[name] = r.value(of, value, learn)
			} else {
				out[name] = r.value(name, value, learn)
			}
		case references(key): // names of secrets, not values
			out[name] = r.walk("", m[name], learn)
		default:
			out[name] = r.walk(name, m[name], learn)
		}
	}
	return out
}

// variables reports whether the object under a key has the values of environment variables.
func variables(key string) bool {
	key = strings.ToLower(key)
	return key == "env" || key == "envs" || key == "environ" || key == "environment" ||
		key == "env_vars" || key == "envvars" || key == "environment_variables"
}

// references reports whether the object under a key has only references to secrets.
func references(key string) bool { return key == "envSecrets" || key == "secretKeyRef" }

// list returns an array that is under a key. If it has words of a command line, the word before and
// the name in a word tell which is a secret.
func (r *Redactor) list(key string, all []any, learn bool) []any {
	out := make([]any, len(all))
	before := ""
	for i, v := range all {
		word, ok := v.(string)
		if !ok {
			out[i], before = r.walk("", v, learn), ""
			continue
		}
		switch {
		case suspect(before) && !dashes.MatchString(word) && !empty(word):
			out[i], before = r.value(before, word, learn), ""
			continue
		case i > 0 && shell.MatchString(str(all[i-1])): // a script
			out[i], before = r.inner(key, word, learn), ""
			continue
		case i > 1 && str(all[i-1]) == "login" && str(all[i-2]) == "wandb" && !dashes.MatchString(word):
			out[i], before = r.value("login", word, learn), ""
			continue
		}
		before = ""
		name, value, pair := strings.Cut(word, "=")
		if strings.ContainsAny(name, " \t\n;") {
			name, value, pair = word, "", false
		}
		bare := strings.TrimLeft(name, "-")
		switch {
		case !pair && dashes.MatchString(word) && !strings.ContainsAny(word, " \t\n:"):
			before = bare
			out[i] = word
		case pair && variables(bare) && bare != name:
			out[i] = name + "=" + r.pairs(value, learn)
		case pair && (suspect(bare) || variables(key)) && !empty(value):
			out[i] = name + "=" + r.value(bare, value, learn)
		default:
			out[i] = r.text(key, word, learn)
		}
	}
	return out
}

// str returns a text, "" if a value is none.
func str(v any) string {
	s, _ := v.(string)
	return s
}

// pairs returns the values of --envs: A=b,C=d. A comma may be in a value.
func (r *Redactor) pairs(list string, learn bool) string {
	var out []string
	last := "" // name
	for part := range strings.SplitSeq(list, ",") {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case ok && !empty(value):
			last = name
			out = append(out, name+"="+r.value(name, value, learn))
		case !ok && len(out) > 0: // the rest of the value before
			if learn {
				r.Known(last, part)
			}
		default:
			out = append(out, part)
		}
	}
	return strings.Join(out, ",")
}

// empty reports whether a value is nothing, or a reference to another variable.
func empty(v string) bool { return strings.TrimSpace(v) == "" || reference.MatchString(v) }
