package secret

import (
	"cmp"
	"encoding/base64"
	"iter"
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

// Text returns a text without its secrets.
func (r *Redactor) Text(text string) string {
	text = r.known(text)
	if strings.Contains(text, "PRIVATE KEY") {
		text = r.keys(text)
	}
	lower := lowered(text)
	for _, s := range scans {
		changed := s.rewrite(text, lower, func(found, _ string) string { return r.mask(s.kind) })
		if changed != text {
			text, lower = changed, lowered(changed)
		}
	}
	return afterNames(text, lower, func(kind, _, _ string) string { return r.mask(kind) })
}

// secrets calls found for each secret that a text has by its form.
func secrets(text string, found func(name, value string)) {
	lower := lowered(text)
	for _, s := range scans {
		s.rewrite(text, lower, func(value, name string) string {
			found(name, value)
			return value
		})
	}
	afterNames(text, lower, func(_, name, value string) string {
		found(name, value)
		return value
	})
}

// lowered returns a text in which the letters A to Z are small. It has the same length.
func lowered(text string) string {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// rewrite replaces the secrets of a text. Only lines with a hint are looked at: most have none, and
// a pattern is slow.
func (s *scan) rewrite(text, lower string, with func(value, name string) string) string {
	var b strings.Builder
	end := 0 // of what is in b
	at := 2 * s.is.SubexpIndex("secret")
	for from, to := range s.regions(lower) {
		part := text[from:to]
		if s.kind == "password of a URL" && !strings.Contains(part, "@") && !strings.Contains(part, "%40") {
			continue
		}
		for _, groups := range s.is.FindAllStringSubmatchIndex(part, -1) {
			first, last := from+groups[at], from+groups[at+1]
			if first < end {
				continue
			}
			name := text[from+groups[0] : first]
			if s.harmless(name, strings.Trim(text[first:last], `\"' `)) {
				continue
			}
			b.WriteString(text[end:first])
			b.WriteString(with(text[first:last], name))
			end = last
		}
	}
	if end == 0 {
		return text
	}
	b.WriteString(text[end:])
	return b.String()
}

// How much of a text is looked at after a name, unless its value is longer. A pattern is faster on
// a short text.
const (
	shortWindow   = 512
	longestWindow = 8 << 10
)

// afterNames replaces what follows the names of secrets. Names are found without a pattern: those
// of tokens are in many lines of a program that counts them.
func afterNames(text, lower string, with func(kind, name, value string) string) string {
	var b strings.Builder
	end := 0 // of what is in b
	known := make(map[string]bool)
	next := make([]int, len(nameHints))
	for i, hint := range nameHints {
		next[i] = index(lower, hint, 0)
	}
	for at := slices.Min(next); at < len(text); at = slices.Min(next) {
		from, to := nameAround(lower, at, end)
		name := text[from:to]
		is, ok := known[name]
		if !ok && len(known) < 1000 {
			is = ofSecret.MatchString(name)
			known[name] = is
		} else if !ok {
			is = ofSecret.MatchString(name)
		}
		if is {
			kind, first, last := valueAfter(text, from, to)
			if kind != "" && !harmlessNamed(text[max(end, from-16):to], strings.Trim(text[first:last], `\"' `)) {
				b.WriteString(text[end:first])
				b.WriteString(with(kind, name, text[first:last]))
				end, to = last, last
			}
		}
		for i, hint := range nameHints {
			if next[i] < to {
				next[i] = index(lower, hint, to)
			}
		}
	}
	if end == 0 {
		return text
	}
	b.WriteString(text[end:])
	return b.String()
}

// nameAround returns the name at a position, at most 128 bytes of it before. That of a key
// may have a space.
func nameAround(lower string, at, least int) (from, to int) {
	least = max(least, at-128)
	nameByte := func(c byte) bool { return wordByte(c) || c == '_' || c == '.' || c == '-' }
	for from, to = at, at; to < len(lower) && to < at+128 && nameByte(lower[to]); to++ {
	}
	for from > least && nameByte(lower[from-1]) {
		from--
	}
	if from == at && strings.HasPrefix(lower[at:], "key") && from > least && lower[from-1] == ' ' {
		for from--; from > least && nameByte(lower[from-1]); {
			from--
		}
	}
	return from, to
}

// valueAfter returns where the value of a name is, and how it was found, "" if there is none.
func valueAfter(text string, from, to int) (kind string, first, last int) {
	before, after := text[max(0, from-24):from], text[to:min(len(text), to+longestWindow)]
	short := after[:min(len(after), shortWindow)]
	// a quick look at most names, which have no value
	if after == "" || strings.IndexByte("=:\"'\\] \t\n\x1b,%", after[0]) < 0 ||
		from > 0 && text[from-1] == '/' && strings.HasPrefix(after, ": ") { // a message about a file
		return "", 0, 0
	}
	try := func(is *regexp.Regexp) bool {
		groups := is.FindStringSubmatchIndex(short)
		if groups == nil {
			return false
		}
		if groups[3] == shortWindow {
			groups = is.FindStringSubmatchIndex(after)
		}
		first, last = to+groups[2], to+groups[3]
		if groups[3] == longestWindow {
			last = index(text, "\n", last)
		}
		return true
	}
	switch {
	case strings.Contains(before, ":") && beforeVariable.MatchString(before) && try(ofVariable):
		kind = "variable"
	case strings.Contains(before, "(") && beforeCall.MatchString(before) && try(inCall):
		return "named", first, last
	case phrases.MatchString(text[from:to]) && startsLine(text, from) && try(restOfLine):
		return "named", first, last
	case try(assigned):
		kind = "named"
	case text[from] == '-' && (from == 0 || strings.IndexByte(" \t\r\n\"'[,(", text[from-1]) >= 0) && try(nextWord):
		if strings.HasPrefix(strings.Trim(text[first:last], `\"'`), "--") {
			return "", 0, 0
		}
		kind = "option"
	default:
		return "", 0, 0
	}
	if from > 0 && text[from-1] == '\'' && after[0] == '=' { // a word of a shell's trace
		window := text[first:min(len(text), first+longestWindow)]
		if end := strings.IndexAny(window, "'\n"); end > last-first && window[end] == '\'' {
			return kind, first, first + end
		}
	}
	return kind, first, valueEnd(text, first, last)
}

// startsLine reports whether before a position there is nothing in its line but its indent.
func startsLine(text string, at int) bool {
	before := strings.TrimRight(text[max(0, at-64):at], ` \t-"'`)
	return before == "" && at < 64 || strings.HasSuffix(before, "\n")
}

var (
	ofSecret       = regexp.MustCompile(`(?i)` + secretNames + `$`)
	phrases        = regexp.MustCompile(`(?i)(?:password|passwd|passphrase)$`)
	beforeVariable = regexp.MustCompile(`(?i)name\\*["']?:[ \t]*\\*["']?$`)
	beforeCall     = regexp.MustCompile(`\(b?["']$`)
	// what is after a name
	assigned = regexp.MustCompile(
		`^` + colors + `\\*["']?\]?` + colors + `[ \t]*(?:=>|:=|[:=]{1,2}|%3[Dd])[ \t]*` + colors +
			`(` + secretValue + `)`)
	inCall     = regexp.MustCompile(`^["'][ \t]*,[ \t]*([bru]?(?:"(?:[^"\\\n]|\\[^\n])*"?|'(?:[^'\\\n]|\\[^\n])*'?))`)
	ofVariable = regexp.MustCompile(
		`^\\*["']?[ \t]*,?[ \t]*\n?[ \t]*\\*["']?value\\*["']?[ \t]*:[ \t]*(` + secretValue + `)`)
	restOfLine = regexp.MustCompile(`^["']?:[ \t]+([^\s"'|>\[{&*!\\][^\n,;]*[^\n\s,;}\])])`)
	nextWord   = regexp.MustCompile(
		`^(?:[ \t]+|\\*["'][ \t]*,?[ \t]*\n?[ \t]*|[ \t]*\n[ \t]+(?:-[ \t]+)?|[ \t]*\n[ \t]*-[ \t]+)(` +
			secretValue + `)`)
)

// regions yields the parts of a text in which a scan may find something: whole lines.
func (s *scan) regions(lower string) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		next := make([]int, len(s.hints)) // where each hint is next
		for i, hint := range s.hints {
			next[i] = s.hint(lower, hint, 0)
		}
		for {
			first := slices.Min(next)
			if first == len(lower) {
				return
			}
			from := strings.LastIndexByte(lower[:first], '\n') + 1
			to, more := lineEnd(lower, first), s.lines
			// with lines after it that may belong to it, and lines that have a hint themselves
			for {
				hinted := false
				for i, hint := range s.hints {
					if next[i] < to {
						next[i] = s.hint(lower, hint, to)
					}
					hinted = hinted || next[i] < len(lower) && next[i] < lineEnd(lower, to)
				}
				if hinted {
					more = s.lines
				} else if more--; more < 0 {
					break
				}
				if to == len(lower) {
					break
				}
				to = lineEnd(lower, to)
			}
			if !yield(from, to) {
				return
			}
		}
	}
}

// hint returns where a hint is next. A key does not begin within a word.
func (s *scan) hint(lower, hint string, from int) int {
	for {
		at := index(lower, hint, from)
		if s.kind != "key" || at == len(lower) || hint[0] == '_' || strings.HasPrefix(hint, "k_") || begins(lower, at) {
			return at
		}
		from = at + 1
	}
}

// begins reports whether a word begins at a position, be it after an escape.
func begins(lower string, at int) bool {
	if at == 0 || !wordByte(lower[at-1]) {
		return true
	}
	switch c := lower[at-1]; {
	case at > 2 && lower[at-3] == '%':
		return true
	case at > 1 && lower[at-2] == '\\':
		return c == 'n' || c == 'r' || c == 't'
	case at > 1 && c == 'm':
		return '0' <= lower[at-2] && lower[at-2] <= '9' || lower[at-2] == '['
	}
	return false
}

// index returns where a text has a part, from a position on; its length if it has none.
func index(text, part string, from int) int {
	if i := strings.Index(text[from:], part); i >= 0 {
		return from + i
	}
	return len(text)
}

// lineEnd returns the end of the line at a position, after its end mark.
func lineEnd(text string, at int) int { return min(index(text, "\n", at)+1, len(text)) }

// valueEnd returns the end of a value that has no quotes. Marks such as a comma belong to it if a
// letter or a digit follows, but not the name of another value.
func valueEnd(text string, first, last int) int {
	if strings.ContainsAny(text[first:min(first+3, last)], `"'`) {
		if text[first] == '\\' {
			return last
		}
		rest := text[last:min(len(text), last+longestWindow)]
		return last + len(concatenated.FindString(rest))
	}
	if v := text[first:last]; block.MatchString(v) && strings.HasPrefix(text[last:], "\n") {
		return blockEnd(text, first, last)
	}
	for last < len(text)-1 && strings.IndexByte(`,;&)}]"'`, text[last]) >= 0 && wordByte(text[last+1]) &&
		!pairNext.MatchString(text[last+1:min(len(text), last+64)]) {
		last++
		for last < len(text) && strings.IndexByte(" \t\r\n,;&)}]\"'", text[last]) < 0 {
			last++
		}
	}
	return last
}

func wordByte(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// blockEnd returns the end of a block of YAML, whose lines are indented more than that of its name.
func blockEnd(text string, first, last int) int {
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	outer := indent(text[strings.LastIndexByte(text[:first], '\n')+1:])
	end := last
	for last < len(text)-1 {
		from := last + 1
		to := index(text, "\n", from)
		if line := text[from:to]; strings.TrimSpace(line) != "" && indent(line) <= outer {
			break
		} else if strings.TrimSpace(line) != "" {
			end = to
		}
		last = to
	}
	return end
}

var (
	// concatenated matches what a shell adds to a value in quotes: 'it'\''s'
	concatenated = regexp.MustCompile(`^(?:\\''[^'\n]*'|'[0-9A-Za-z][^'\n]*'|"[0-9A-Za-z][^"\n]*"|[0-9A-Za-z]+)+`)
	block        = regexp.MustCompile(`^[|>][-+]?[0-9]?[-+]?$`)
	pairNext     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*["']?[=:]`)
	// says matches what a message says instead of a value
	says = regexp.MustCompile(
		`^(?i:none|null|nil|true|false|undefined|unset|empty|missing|expected|required|invalid|` +
			`unexpected|is|are|was|must|not|for|and|or|requires|cannot|\*+|x{3,}|<[a-z_ /|]+>|\[[a-z]{3,4}\]|\.{3})$`)
	// counted matches names of tokens of a text, not of a service
	counted = regexp.MustCompile(
		`(?i)(?:^|[_. -])(?:eos|bos|pad|unk|cls|sep|mask|per|next|last|num|special|unexpected|` +
			`first|second|top|total|image|stop|start|end|seq|new|prompt)[_ -]?token[^a-z]*$`)
	ofToken  = regexp.MustCompile(`(?i)token[^a-z]*$`)
	quantity = regexp.MustCompile(`^[-+]?(?:[0-9]{1,5}|[0-9]{1,9}\.[0-9]+(?:e[-+]?[0-9]+)?)(?:[a-zµ%/]{1,5})?$`)
	ofPlace  = regexp.MustCompile(`(?i)(?:pwd|credentials?)[^a-z]*$`)
)

// harmless reports whether a value, without its quotes, is none that is removed.
func (s *scan) harmless(name, bare string) bool {
	if bare == "" || masked(bare) || refers.MatchString(bare) {
		return true
	}
	switch s.kind {
	case "password of a URL":
		return portAndPath.MatchString(bare) && !strings.HasSuffix(name, "/:")
	case "login":
		if strings.HasPrefix(strings.ToLower(name), "basic") {
			return !login(bare)
		}
		return strings.Contains(strings.ToLower(name), "curl") && number.MatchString(bare)
	}
	return false
}

// harmlessNamed reports whether a value after the name of a secret is none that is removed.
func harmlessNamed(name, bare string) bool {
	return bare == "" || masked(bare) || refers.MatchString(bare) || says.MatchString(bare) ||
		counted.MatchString(name) || ofToken.MatchString(name) && quantity.MatchString(bare) || place(name, bare)
}

var number = regexp.MustCompile(`^[0-9]+$`)

// login reports whether a text is the base64 of a user and a password.
func login(text string) bool {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	return err == nil && strings.Contains(string(plain), ":")
}

// place reports whether the value of a name is the path of a file. A key in base64 may begin with a
// slash, too.
func place(name, value string) bool {
	return ofPlace.MatchString(name) && anyPath.MatchString(value) || knownPath.MatchString(value)
}

var (
	anyPath   = regexp.MustCompile(`^~?\.{0,2}/\S*$`)
	knownPath = regexp.MustCompile(
		`^(?:~/|\.{1,2}/|/(?:var|etc|home|run|mnt|tmp|root|data|opt|usr|workspace|app|secrets)/)` +
			`[0-9A-Za-z_./@-]*$`)
)

// refers matches the beginning of a reference to a variable.
var refers = regexp.MustCompile(`^\$[({][A-Za-z_][A-Za-z0-9_]*[)}]?$`)

// portAndPath matches what is between a colon and an @ of a URL without a password.
var portAndPath = regexp.MustCompile(`^[0-9]{1,5}[/?#]`)

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
	before := marks(text)
	for name, n := range marks(out) {
		for range n - before[name] {
			r.mask(name)
		}
	}
	return out
}

// marks counts what stands in the place of secrets, by what they were.
func marks(text string) map[string]int {
	all := make(map[string]int)
	for {
		_, rest, ok := strings.Cut(text, mark)
		if !ok {
			return all
		}
		name, _, _ := strings.Cut(rest[:min(len(rest), longestName)], "]")
		all[name]++
		text = rest
	}
}

// longestName is the maximum number of bytes of what a secret was.
const longestName = 512

// keys removes private keys, also those of which the text has only the beginning or the end.
func (r *Redactor) keys(text string) string {
	begins, ends := pemBegin.FindAllStringIndex(text, -1), pemEnd.FindAllStringIndex(text, -1)
	var b strings.Builder
	done := 0 // what is in b, or was removed
	for len(begins)+len(ends) > 0 {
		switch {
		case len(begins) > 0 && begins[0][0] < done:
			begins = begins[1:]
		case len(ends) > 0 && ends[0][0] < done:
			ends = ends[1:]
		case len(begins) == 0 || len(ends) > 0 && ends[0][0] < begins[0][0]: // only the end
			from := max(done, ends[0][0]-longestKey)
			before := text[from:ends[0][0]]
			if lines := pemBefore.FindStringIndex(before); lines != nil {
				before = before[:lines[0]]
			}
			b.WriteString(text[done:from] + before + r.mask("private key"))
			done, ends = ends[0][1], ends[1:]
		default:
			b.WriteString(text[done:begins[0][0]] + r.mask("private key"))
			done, begins = begins[0][1], begins[1:]
			if len(ends) > 0 && ends[0][1] <= done+longestKey {
				done, ends = ends[0][1], ends[1:]
				continue
			}
			done += len(pemLines.FindString(text[done:]))
		}
	}
	b.WriteString(text[done:])
	return b.String()
}
