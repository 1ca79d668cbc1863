package secret

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	pemBegin = regexp.MustCompile(`-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----`)
	pemEnd   = regexp.MustCompile(`-----END ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----`)
	// lines of base64 after the beginning or before the end of a key that is not whole
	pemLines  = regexp.MustCompile(`^(?:(?:\s|\\n|\\r)*[A-Za-z0-9+/=]{20,})+`)
	pemBefore = regexp.MustCompile(`(?:[A-Za-z0-9+/=]{20,}(?:\s|\\n|\\r)*)+(?:[A-Za-z0-9+/=]{1,76}(?:\s|\\n|\\r)*)?$`)
	reference = regexp.MustCompile(`^\$\([A-Za-z_][A-Za-z0-9_]*\)$|^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)
)

// longestKey is the maximum number of bytes from the beginning of a private key to its end.
const longestKey = 16 << 10

// scans find secrets in a text: the part of the pattern in the group "secret". In order: an earlier
// one knows more exactly what a secret is.
var scans = []struct {
	kind string
	is   *regexp.Regexp
}{
	{"header", regexp.MustCompile(`(?i)\b(?:proxy-)?(?:authorization|cookie|set-cookie|x-api-key|x-auth-token)\b` +
		`\\*["']?\s*[:=]\s*\\*["']?(?P<secret>[^"'\n\\]{4,})`)},
	{"token", regexp.MustCompile(`(?i)\bbearer\s+(?P<secret>[0-9A-Za-z._~+/=-]{8,})`)},
	{"password of a URL", regexp.MustCompile(
		`[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#"'@:]*:(?P<secret>[^\s"'<>@][^\s"'<>]*)@`)},
	{"user of a URL", regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://(?P<secret>[0-9A-Za-z_-]{20,})@`)},
	{"parameter of a URL", regexp.MustCompile(`(?i)[?&;](?:X-Amz-Signature|X-Amz-Security-Token|X-Amz-Credential|` +
		`X-Goog-Signature|X-Goog-Credential|Signature|sig|[a-z_-]*token|[a-z_-]*key|[a-z_-]*secret|password)=` +
		`(?P<secret>[^&\s"'<>;]{4,})`)},
	{"key", regexp.MustCompile(`(?P<secret>\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}|` +
		`gh[pousr]_[0-9A-Za-z]{20,}|github_pat_[0-9A-Za-z_]{20,}|glpat-[0-9A-Za-z_-]{16,}|hf_[0-9A-Za-z]{20,}|` +
		`xox[abeprs]-[0-9A-Za-z-]{8,}|sk-[0-9A-Za-z_-]{16,}|[rsp]k_(?:live|test)_[0-9A-Za-z]{16,}|` +
		`npm_[0-9A-Za-z]{20,}|dckr_pat_[0-9A-Za-z_-]{16,}|pypi-[0-9A-Za-z_-]{16,}|ya29\.[0-9A-Za-z._-]{16,}|` +
		`eyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{4,}\.?[0-9A-Za-z_-]*))`)},
	{"address of a webhook", regexp.MustCompile(`https://hooks\.slack\.com/services/(?P<secret>[0-9A-Za-z/_-]{8,})`)},
	{"login", regexp.MustCompile(`(?i)\blogin\s+\S+\s+password\s+(?P<secret>\S+)`)},
	{"option", regexp.MustCompile(`(?i)(?:^|[\s"'\[,])--?[a-z0-9_.-]*` + secretNames +
		`\s+(?P<secret>[^\s"'-][^\s"',;)}\]]*)`)},
	{"named", regexp.MustCompile(`(?i)[a-z0-9_.-]*` + secretNames +
		`\\*["']?\s*(?:=>|[:=])\s*(?P<secret>\\+["'][^"'\n]*["']?|` +
		`"(?:[^"\\\n]|\\[^\n])*"?|'(?:[^'\\\n]|\\[^\n])*'?|[^\s,;&)}\]"']+)`)},
}

// secretNames matches the end of the name of a secret in a text.
const secretNames = `(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|secret[_-]?key|` +
	`private[_-]?key|account[_-]?key|auth[_-]?key|signing[_-]?key|encryption[_-]?key|credentials?|pwd)`

// Text returns a text without its secrets.
func (r *Redactor) Text(text string) string {
	text = r.known(text)
	if strings.Contains(text, "PRIVATE KEY") {
		text = r.keys(text)
	}
	for _, s := range scans {
		at := s.is.SubexpIndex("secret")
		text = rewrite(s.is, text, func(groups []int) (from, to int, with string) {
			from, to = groups[2*at], groups[2*at+1]
			found := text[from:to]
			if bare := strings.Trim(found, `\"' `); bare == "" || masked(bare) || refers.MatchString(bare) ||
				s.kind == "password of a URL" && portAndPath.MatchString(bare) {
				return from, from, ""
			}
			return from, to, r.mask(s.kind)
		})
	}
	return text
}

// refers matches the beginning of a reference to a variable.
var refers = regexp.MustCompile(`^\$[({][A-Za-z_][A-Za-z0-9_]*[)}]?$`)

// portAndPath matches what is between a colon and an @ of a URL without a password.
var portAndPath = regexp.MustCompile(`^[0-9]{1,5}/`)

// known replaces the values that were learned.
func (r *Redactor) known(text string) string {
	if len(r.values) == 0 {
		return text
	}
	if r.replace == nil {
		var pairs []string
		for _, v := range slices.SortedFunc(maps.Keys(r.values), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
		}) {
			pairs = append(pairs, v, mark+r.values[v]+"]")
		}
		r.replace = strings.NewReplacer(pairs...)
	}
	out := r.replace.Replace(text)
	if out == text {
		return text
	}
	for _, name := range slices.Compact(slices.Sorted(maps.Values(r.values))) {
		what := mark + name + "]"
		for range strings.Count(out, what) - strings.Count(text, what) {
			r.mask(name)
		}
	}
	return out
}

// keys removes private keys, also those of which the text has only the beginning or the end.
func (r *Redactor) keys(text string) string {
	var b strings.Builder
	for {
		begin, end := pemBegin.FindStringIndex(text), pemEnd.FindStringIndex(text)
		switch {
		case begin == nil && end == nil:
			b.WriteString(text)
			return b.String()
		case begin == nil || end != nil && end[0] < begin[0]: // only the end
			before := text[:end[0]]
			if lines := pemBefore.FindStringIndex(before); lines != nil {
				before = before[:lines[0]]
			}
			b.WriteString(before + r.mask("private key"))
			text = text[end[1]:]
		default:
			b.WriteString(text[:begin[0]] + r.mask("private key"))
			rest := text[begin[1]:]
			if end := pemEnd.FindStringIndex(rest[:min(len(rest), longestKey)]); end != nil {
				text = rest[end[1]:]
				continue
			}
			text = rest[len(pemLines.FindString(rest)):]
		}
	}
}

// rewrite replaces, in each match of a pattern, the part that replace returns.
func rewrite(is *regexp.Regexp, text string, replace func(groups []int) (from, to int, with string)) string {
	all := is.FindAllStringSubmatchIndex(text, -1)
	if len(all) == 0 {
		return text
	}
	var b strings.Builder
	end := 0
	for _, groups := range all {
		from, to, with := replace(groups)
		b.WriteString(text[end:from])
		b.WriteString(with)
		end = to
	}
	b.WriteString(text[end:])
	return b.String()
}
