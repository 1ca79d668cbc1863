package secret

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Find returns the texts in a JSON value that look like secrets, each as "path (why)". In
// pairs of name and value, such as variables of containers, the name counts, too.
func Find(v any) (found []string) {
	var look func(path, name string, v any)
	look = func(path, name string, v any) {
		switch v := v.(type) {
		case string:
			if why := Looks(name, v); why != "" {
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

// Looks returns why a value and its name look like a secret, "" if they do not. The name may
// be "". Harmless values, such as numbers, booleans and paths of files, are never secrets. The
// result never contains a part of the value.
func Looks(name, value string) (why string) {
	for _, form := range secretForms {
		if form.is.MatchString(value) {
			return form.name
		}
	}
	if named(name) && !harmless.MatchString(value) {
		return "by its name"
	}
	return ""
}

// named reports whether a name is that of a secret.
func named(name string) bool {
	words := strings.FieldsFunc(strings.ToUpper(camel.ReplaceAllString(name, "${1}_${2}")), func(r rune) bool {
		return !('A' <= r && r <= 'Z' || '0' <= r && r <= '9')
	})
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	return secretWord.MatchString(last) ||
		last == "KEY" && len(words) > 1 && secretKind.MatchString(words[len(words)-2])
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
