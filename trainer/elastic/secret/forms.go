package secret

import "regexp"

// scan finds secrets of one form in a text: the part of the pattern in the group "secret".
type scan struct {
	kind string
	is   *regexp.Regexp
	// the pattern begins in a line that has one of these texts, in lower case
	hints []string
	// how many lines it may reach beyond
	lines int
}

// scans are in order: an earlier one knows more exactly what a secret is.
var scans = []scan{
	{"header", regexp.MustCompile(
		`(?i)\b(?:proxy-authorization|authorization|cookie|set-cookie|x-api-key|x-auth-token|` +
			`[a-z-]+-(?:subscription|functions)-key)\b` + `(?:["'][ \t]*,|\\*["']?[ \t]*[:=])[ \t]*(?:[bu]?\\*["'])?` +
			`(?P<secret>(?:="[^",:;{}\n][^"\n]*"|[^"'\n\\]){4,})`),
		[]string{"authorization", "cookie", "x-a", "-key"}, 0},
	{"token", regexp.MustCompile(`(?i)\bbearer\s+(?P<secret>[0-9A-Za-z._~+/=-]{8,})`), []string{"bearer"}, 1},
	{"login", regexp.MustCompile(`(?i)\bbasic\s+(?P<secret>[0-9A-Za-z+/_-]{6,}={0,2})`), []string{"basic"}, 1},
	{"password of a URL", regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*:(?:\\?/){2}[^\s/?#"'@:]*:` +
		`(?P<secret>[^\s"'<>@](?:[^\s"'<>]|["'<>][0-9A-Za-z])*|@[^\s"'<>/@]+)@`), []string{":/", `:\/`}, 0},
	{"password of a URL", regexp.MustCompile(`://[^\s/?#"'@:]+@[^\s/?#"'@:]+:(?P<secret>[^\s/"'<>@]+)@`),
		[]string{"://"}, 0},
	{"password of a URL", regexp.MustCompile(`(?i)%3a%2f%2f[0-9a-z._~-]*%3a(?P<secret>[^\s&"'<>]+?)%40`),
		[]string{"%3a%2f%2f"}, 0},
	{"password of a URL", regexp.MustCompile(`[0-9A-Za-z_.-]+:(?P<secret>[^\s"'@]+)@(?:tcp|unix)\(`),
		[]string{"@tcp(", "@unix("}, 0},
	{"user of a URL", regexp.MustCompile(
		`[A-Za-z][A-Za-z0-9+.-]*://(?P<secret>[0-9A-Za-z_%-]{20,})@`), []string{"://"}, 0},
	{"parameter of a URL", regexp.MustCompile(
		`(?i)(?:[?&;]|\\u0026|%26|%3F)(?:X-Amz-Signature|X-Amz-Security-Token|` +
			`X-Amz-Credential|X-Goog-Signature|X-Goog-Credential|Signature|sig|[a-z_-]*token|` +
			`[a-z_-]*key|[a-z_-]*secret|password|passwd|pwd)(?:=|%3D)(?P<secret>[^&\s"'<>;\\]{4,})`),
		[]string{"signature=", "sig=", "token=", "key=", "secret=", "password=", "passwd=", "pwd=",
			"credential=", "%3d"}, 0},
	{"key", regexp.MustCompile(`(?:\b|_|\\[nrt]|%[0-9A-Fa-f]{2}|\[[0-9;]*m)(?P<secret>(?:AKIA|ASIA)[0-9A-Z]{16}|` +
		`AIza[0-9A-Za-z_-]{30,}|gh[pousr]_[0-9A-Za-z]{20,}|github_pat_[0-9A-Za-z_]{20,}|` +
		`gl(?:pat|dt|rt|ft|ptt|cbt|soat)-[0-9A-Za-z_-]{16,}|(?:hf|api_org)_[0-9A-Za-z]{20,}|` +
		`xox[abeprs]-[0-9A-Za-z-]{8,}|xapp-[0-9A-Za-z-]{16,}|sk-[0-9A-Za-z_-]{16,}|` +
		`[rsp]k_(?:live|test)_[0-9A-Za-z]{16,}|npm_[0-9A-Za-z]{20,}|dckr_pat_[0-9A-Za-z_-]{16,}|` +
		`pypi-[0-9A-Za-z_-]{16,}|ya29\.[0-9A-Za-z._-]{16,}|nvapi-[0-9A-Za-z_-]{20,}|(?:gsk|r8|KGAT)_[0-9A-Za-z]{20,}|` +
		`xai-[0-9A-Za-z]{30,}|wandb_v1_[0-9A-Za-z_-]{16,}|lsv2_[ps][tk]_[0-9a-z_]{20,}|dapi[0-9a-f]{32}|` +
		`hv[sbr]\.[0-9A-Za-z_-]{20,}|SG\.[0-9A-Za-z_-]{16,}\.[0-9A-Za-z_-]{16,}|GOCSPX-[0-9A-Za-z_-]{20,}|` +
		`AGE-SECRET-KEY-1[0-9A-Z]{20,}|ATATT3[0-9A-Za-z_=-]{20,}|do[opr]_v1_[0-9a-f]{20,}|` +
		`eyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{4,}\.?[0-9A-Za-z_-]*)`),
		[]string{"akia", "asia", "aiza", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-",
			"gldt-", "glrt-", "glft-", "glptt-", "glcbt-", "glsoat-", "hf_", "api_org_", "xox", "xapp-", "sk-",
			"k_live_", "k_test_", "npm_", "dckr_pat_", "pypi-", "ya29.", "nvapi-", "gsk_", "r8_", "kgat_",
			"xai-", "wandb_v1_", "lsv2_", "dapi", "hvs.", "hvb.", "hvr.", "sg.", "gocspx-", "age-secret",
			"atatt3", "_v1_", "eyj"}, 0},
	{"private key", regexp.MustCompile(`(?P<secret>LS0tLS1CRUdJTi(?:BSU0EgUFJJVkFURS|BQUklWQVRFIE|BFQyBQUklWQVRF|` +
		`BPUEVOU1NIIFBSSVZBVE|BFTkNSWVBURUQgUFJJ)[0-9A-Za-z+/=_-]*)`), []string{"ls0tls1crudj"}, 0},
	{"address of a webhook", regexp.MustCompile(
		`https://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks|` +
			`[0-9a-z.-]+\.webhook\.office\.com/webhookb2)/(?P<secret>[0-9A-Za-z@/_-]{8,})`),
		[]string{"hooks.slack", "/webhook"}, 0},
	{"login", regexp.MustCompile(`(?i)\b(?:login|machine)\s+\S+\s+password\s+(?P<secret>\S+)`),
		[]string{"login", "machine"}, 2},
	{"login", regexp.MustCompile(
		`(?im)^(?:\[[^\]\n]*\])?[ \t]+password[ \t]+(?P<secret>\S+)[ \t]*$`), []string{"password"}, 0},
	{"login", regexp.MustCompile(
		`(?i)\bwandb["', \t]+login["', \t]+(?:--\S+["', \t]+)*(?P<secret>[0-9A-Za-z_-]{30,})`),
		[]string{"wandb"}, 0},
	{"login", regexp.MustCompile(`(?i)\b(?:login|init|auth)\([^\n()]*\bkey\s*=\s*[bru]?["'](?P<secret>[^"'\n]+)`),
		[]string{"login(", "init(", "auth("}, 0},
	{"login", regexp.MustCompile(
		`(?i)\bauth\w*\\*["']?\s*[=:]\s*\(\s*["'][^"'\n]*["']\s*,\s*[bru]?["'](?P<secret>[^"'\n]+)`),
		[]string{"auth"}, 0},
	{"login", regexp.MustCompile(
		`(?i)\bcurl\b[^\n]*?[ \t](?:-u|--user|--proxy-user)[ \t=]+["']?[^\s:"']+:(?P<secret>[^\s"']+)`),
		[]string{"curl"}, 0},
	{"login", regexp.MustCompile(
		`(?i)\b(?:mysql|mariadb)[a-z-]*\b[^\n]*?[ \t"'\[,](?-i:-p)(?P<secret>[^\s"',\]]{4,})`),
		[]string{"mysql", "mariadb"}, 0},
	{"login", regexp.MustCompile(
		`(?i)username\\*["'][ \t]*:[^\n]{1,80}\bkey\\*["'][ \t]*:[ \t]*\\*["'](?P<secret>[0-9a-f]{32,})`),
		[]string{"username"}, 0},
	{"auth", regexp.MustCompile(`(?i)["']_?auth\\*["'][ \t]*:[ \t]*\\*["'](?P<secret>[0-9A-Za-z+/=_-]{8,})`),
		[]string{"auth\"", "auth'", `auth\`}, 0},
}

// colors matches what a terminal shows as a change of colors.
const colors = `(?:(?:\x1b|\\x1b|\\u001b)\[[0-9;]*m)*`

// secretNames matches the end of the name of a secret in a text.
const secretNames = `(?:pass(?:word|wd|phrase|code)|secret|token|credentials?|pwd|connection[_-]?string|` +
	`client-key-data|(?-i:[A-Z0-9]_PASS)|(?:db|sql|user|smtp|mail|admin|root|redis|ftp|proxy)_?pass|` +
	`(?:api|access|secret|private|account|auth|signing|encryption|storage|master|shared|subscription|license|` +
	`app|session|client|ssh|openai|wandb|anthropic|comet|neptune|hf|azure|gcp|aws|s3)[ _-]?key)`

// nameHints are in each name of a secret, in lower case.
var nameHints = []string{"pass", "secret", "token", "credential", "pwd", "string", "key"}

// secretValue matches the value after a name: in quotes, or to the next space or mark.
const secretValue = `"""[^"]*(?:""")?|'''[^']*(?:''')?|` +
	`\\"(?:[^"\\\n]|\\\\(?:\\.|[^"\\\n]))*(?:\\")?|\\+["'][^"'\n]*["']?|` +
	`[bru]{0,2}(?:"(?:[^"\\\n]|\\[^\n])*"?|'(?:[^'\\\n]|\\[^\n])*'?)|[^\s,;&)}\]"']+`
