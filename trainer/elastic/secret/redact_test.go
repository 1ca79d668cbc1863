package secret

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const password = "hunter2!x"

// body is a line of a private key, and its last one.
var body = strings.Repeat("QUJDREVG", 8) + "\n" + "QUI=\n"

func TestTextHasNoSecret(t *testing.T) {
	for name, c := range map[string]struct{ text, secret, want string }{
		"assignment":     {"PGPASSWORD=" + password + " psql", password, "PGPASSWORD=[redacted named] psql"},
		"words after it": {"token: abc, next", "abc", "token: [redacted named], next"},
		"yaml":           {"  password: " + password, password, ""},
		"json": {`{"client_secret": "` + password + `", "a": 1}`, password,
			`{"client_secret": [redacted named], "a": 1}`},
		"json in json":  {`"{\"api_key\":\"` + password + `\"}"`, password, ""},
		"quoted spaces": {`secret="two words"`, "two words", "secret=[redacted named]"},
		"python":        {"{'hf_token': '" + password + "'}", password, "{'hf_token': [redacted named]}"},
		"arrow":         {"'apiKey' => '" + password + "'", password, ""},
		"option":        {"mysql --password " + password, password, "mysql --password [redacted option]"},
		"bearer":        {"Authorization: Bearer " + password, password, "Authorization: [redacted header]"},
		"bearer alone":  {"sent bearer 0123456789abcdef", "0123456789abcdef", "sent bearer [redacted token]"},
		"cookie":        {"cookie: session=" + password + "; theme=dark", password, "cookie: [redacted header]"},
		"header in json": {`{"authorization":"Basic YTpi` + `Ymo=","b":2}`, "YTpi",
			`{"authorization":"[redacted header]","b":2}`},
		"curl": {"curl -H 'X-Api-Key: " + password + "'", password, "curl -H 'X-Api-Key: [redacted header]'"},
		"url": {"postgres://me:" + password + "@db:5432/x", password,
			"postgres://me:[redacted password of a URL]@db:5432/x"},
		"url with /":    {"redis://:a/b@c?d@cache:6379/0", "a/b", ""},
		"url with user": {"https://" + strings.Repeat("k", 24) + "@host/x", "kkkk", ""},
		"signed url": {"GET https://b.s3.amazonaws.com/k?X-Amz-Expires=9&X-Amz-Signature=0123456789abcdef HTTP/1.1",
			"0123456789abcdef",
			"GET https://b.s3.amazonaws.com/k?X-Amz-Expires=9&X-Amz-Signature=[redacted parameter of a URL] HTTP/1.1"},
		"parameter": {"https://host/f?access_token=abcdefgh&x=1", "abcdefgh", ""},
		"aws":       {"id=" + awsKey + " ok", awsKey, "id=[redacted key] ok"},
		"github":    {"cloned with " + githubs, githubs, ""},
		"long hub":  {hubs + "b0123", "b0123", "[redacted key]"},
		"openai":    {openais, openais, ""},
		"jwt":       {"x " + jwt + " y", "eyJ", "x [redacted key] y"},
		"webhook":   {"https://hooks.slack.com/services/" + "T00/B00/abcdefgh", "abcdefgh", ""},
		"netrc":     {"machine api.wandb.ai login user password 0123456789", "0123456789", ""},
		"pem": {"a\n" + pem + "\n" + body + "-----END RSA " + "PRIVATE KEY-----\nb", "QUJD",
			"a\n[redacted private key]\nb"},
		"pem, escaped": {`"` + strings.ReplaceAll(pem+"\n"+body+"-----END RSA "+"PRIVATE KEY-----", "\n",
			`\n`) + `"`, "QUJD", ""},
		"pem, prefixed lines": {"[r0] " + pem + "\n[r0] " + strings.ReplaceAll(body, "\n", "\n[r0] ") +
			"-----END RSA " + "PRIVATE KEY-----\n[r0] done", "QUJD", "[r0] [redacted private key]\n[r0] done"},
		"pem, cut after": {strings.TrimSuffix(pem, "MIIE") + strings.Repeat("QUJDREVG", 8) + "\n" +
			"then it failed", "QUJD", ""},
		"pem, cut before": {body + "-----END RSA " + "PRIVATE KEY-----\nb", "QUJD", "[redacted private key]\nb"},
	} {
		r := new(Redactor)
		got := r.Text(c.text)
		if strings.Contains(got, c.secret) {
			t.Errorf("%s: %q still has %q", name, got, c.secret)
		}
		if c.want != "" && got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if again := new(Redactor).Text(got); again != got {
			t.Errorf("%s: redacted again, %q is %q", name, got, again)
		}
		if n := len(r.Removed()); n == 0 {
			t.Errorf("%s: nothing is counted", name)
		}
	}
}

// Texts that help to find a fault stay.
func TestTextKeepsOthers(t *testing.T) {
	for _, text := range []string{
		"step 100 loss 0.31 tokens=4096 max_tokens: 512 tokenizer=gpt2",
		"basic training of https://host:8080/path and s3://bucket/key",
		"cannot open https://github.com/o/r: 404",
		"GOOGLE_APPLICATION_CREDENTIALS_FILE=/var/run/key.json",
		"one-time-token expired; git@github.com:o/r",
		`File "train.py", line 12, in <module>`,
		"-----BEGIN " + "CERTIFICATE-----\n" + body + "-----END " + "CERTIFICATE-----",
		"password=$(PASSWORD) TOKEN=${TOKEN}",
	} {
		if got := new(Redactor).Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func tree(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTree(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"variables of a container": {`{"env": [{"name": "A", "value": "plain"}, {"name": "B", "valueFrom": ` +
			`{"secretKeyRef": {"name": "s", "key": "token"}}}]}`,
			`{"env": [{"name": "A", "value": "[redacted A]"}, {"name": "B", "valueFrom": {"secretKeyRef": ` +
				`{"name": "s", "key": "token"}}}]}`},
		"variables of a job": {`{"envs": {"A": "plain", "B": ""}}`, `{"envs": {"A": "[redacted A]", "B": ""}}`},
		"references": {`{"envSecrets": {"HF_TOKEN": "hub/token"}}`,
			`{"envSecrets": {"HF_TOKEN": "hub/token"}}`},
		"field": {`{"user": "me", "password": "1234"}`,
			`{"user": "me", "password": "[redacted password]"}`},
		"words": {`{"command": ["a.py", "--api_key=x", "--token", "y", "--fast", "--epochs=2", "PASSWORD=z", ` +
			`"--envs=A=b,c,D=e"]}`,
			`{"command": ["a.py", "--api_key=[redacted api_key]", "--token", "[redacted token]", "--fast", ` +
				`"--epochs=2", ` +
				`"PASSWORD=[redacted PASSWORD]", "--envs=A=[redacted A],D=[redacted D]"]}`},
		"JSON in a text": {`{"note": "{\"envs\":{\"A\":\"plain\"},\"n\":12345678901234567890}"}`,
			`{"note": "{\"envs\":{\"A\":\"[redacted A]\"},\"n\":12345678901234567890}"}`},
		"others": {`{"name": "x", "n": 1.5, "b": true, "list": [null, "text"], "key": "user"}`,
			`{"name": "x", "n": 1.5, "b": true, "list": [null, "text"], "key": "user"}`},
	} {
		if got := new(Redactor).Tree(tree(t, c.in)); !reflect.DeepEqual(got, tree(t, c.want)) {
			text, _ := json.Marshal(got)
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// A value that the structure tells is removed from other texts, however it is written there.
func TestLearned(t *testing.T) {
	const value = `pa"ss/wörd+1`
	for name, written := range map[string]string{
		"plain": value, "url": url.QueryEscape(value), "path": url.PathEscape(value), "json": `pa\"ss/wörd+1`,
		"base64":     base64.StdEncoding.EncodeToString([]byte(value)),
		"base64 url": base64.URLEncoding.EncodeToString([]byte(value)),
	} {
		r := new(Redactor)
		r.Learn(map[string]any{"envs": map[string]any{"DB": value, "LEVEL": "info", "PORT": "12345678",
			"DIR": "/data/set"}})
		got := r.Text("connect with " + written + " at level info to port 12345678 in /data/set")
		if want := "connect with [redacted DB]"; !strings.HasPrefix(got, want) ||
			!strings.HasSuffix(got, " at level info to port 12345678 in /data/set") {
			t.Errorf("%s: %q", name, got)
		}
		if n := r.Removed()["DB"]; n != 1 {
			t.Errorf("%s: %d are counted", name, n)
		}
	}
	r := new(Redactor)
	r.Known("KEYS", "first-line-of-it\nsecond-line-of-it")
	if got := r.Text("> second-line-of-it"); got != "> [redacted KEYS]" {
		t.Errorf("a line of a value: %q", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a log ", " line\n", password)
	f.Add(`{"x":"`, `"}`, "postgres://me:"+password+"@db")
	f.Add(pem+"\n", "-----END RSA "+"PRIVATE KEY-----", hubs)
	f.Fuzz(func(t *testing.T, before, after, value string) {
		r := new(Redactor)
		r.Known("SECRET", value)
		text := before + value + after
		got := r.Text(text)
		if v := strings.TrimSpace(value); len(v) >= shortestSecret && !strings.Contains(v, "redacted") &&
			!strings.Contains(mark+"SECRET]", v) && len(r.values) > 0 {
			kinds := slices.Collect(maps.Keys(r.removed))
			if cleaned := strings.Join(strings.Split(got, mark), ""); strings.Contains(cleaned, v) &&
				!strings.Contains(strings.Join(kinds, " "), v) && !strings.Contains(before+after, "redacted") {
				t.Errorf("%q in %q is in %q", v, text, got)
			}
		}
		new(Redactor).Tree(map[string]any{before: after, "a": []any{before, value, after}, "name": before,
			"value": after})
		if text := encode(new(Redactor).Tree(any(`{"a":` + before + `}`))); !json.Valid([]byte(text)) {
			t.Errorf("%q is no JSON", text)
		}
	})
}
