package secret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
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
		"code": {`os.environ["HF_TOKEN"] = "` + password + `"`, password,
			`os.environ["HF_TOKEN"] = [redacted named]`},
		"setdefault":   {`os.environ.setdefault("HF_TOKEN", "` + password + `")`, password, ""},
		"bytes":        {"{'password': b'" + password + "'}", password, "{'password': [redacted named]}"},
		"tuple":        {"[('api_key', '" + password + "')]", password, "[('api_key', [redacted named])]"},
		"go":           {`password := "` + password + `"`, password, "password := [redacted named]"},
		"compared":     {`token == "` + password + `"`, password, ""},
		"three quotes": {`password = """` + password + `"""`, password, ""},
		"escaped quote": {`"{\"password\":\"a\\\"` + password + `\",\"b\":1}"`, password,
			`"{\"password\":[redacted named],\"b\":1}"`},
		"marks":          {"DB_PASSWORD=a,b;c&d)" + password, password, "DB_PASSWORD=[redacted named]"},
		"quote inside":   {"export DB_PASSWORD=a'" + password, password, ""},
		"pair after it":  {"f(password=" + password + ",lr=0.1)", password, "f(password=[redacted named],lr=0.1)"},
		"shell's quotes": {`DB_PASSWORD='it'\''` + password + `' x`, password, "DB_PASSWORD=[redacted named] x"},
		"shell's word": {"+ export 'DB_PASSWORD=a " + password + "'", password,
			"+ export 'DB_PASSWORD=[redacted named]'"},
		"percent": {"password%3D" + "hunter2x&x=1", "hunter2x", "password%3D[redacted named]&x=1"},
		"kaggle": {`{"username":"me","key":"` + strings.Repeat("0a", 16) + `"}`, "0a0a",
			`{"username":"me","key":"[redacted login]"}`},
		"DB_PASS":         {"DB_PASS=" + password, password, "DB_PASS=[redacted named]"},
		"words of a name": {"API key: " + password, password, "API key: [redacted named]"},
		"yaml phrase":     {"a: 1\n  passphrase: correct horse " + password + "\nb: 2", password, ""},
		"yaml block": {"a:\n  password: |\n    one\n    " + password + "\n  b: 2", password,
			"a:\n  password: [redacted named]\n  b: 2"},
		"yaml variable": {"- name: HF_TOKEN\n  value: " + password, password,
			"- name: HF_TOKEN\n  value: [redacted variable]"},
		"json variable": {`{"name":"HF_TOKEN","value":"` + password + `"}`, password,
			`{"name":"HF_TOKEN","value":[redacted variable]}`},
		"json variable, escaped": {`"{\"name\":\"HF_TOKEN\",\"value\":\"` + password + `\"}"`, password, ""},
		"colors":                 {"\x1b[36mapi_key\x1b[0m=\x1b[35m" + password + "\x1b[0m x", password, ""},
		"colored key":            {"\x1b[32m" + hubs + "\x1b[0m", hubs, "\x1b[32m[redacted key]\x1b[0m"},
		"key after escape":       {`b'a\n` + hubs + `'`, hubs, `b'a\n[redacted key]'`},
		"key after percent":      {"q=%22" + hubs + "%22", hubs, ""},
		"nvidia":                 {"nv" + "api-" + strings.Repeat("a", 60), "aaaa", "[redacted key]"},
		"quoted option": {"mysql --password '" + password + "' x", password,
			"mysql --password [redacted option] x"},
		"list of words": {"['a.py', '--api_key', '" + password + "', '--fast']", password,
			"['a.py', '--api_key', [redacted option], '--fast']"},
		"yaml words": {"args:\n- --api_key\n- " + password, password,
			"args:\n- --api_key\n- [redacted option]"},
		"described words": {"Args:\n  --api_key\n  " + password, password, ""},
		"header bytes": {"(b'Authorization', b'Basic YTpi" + "Ymo=')", "YTpi",
			"(b'Authorization', b'[redacted header]')"},
		"basic": {"sent Basic " +
			base64.StdEncoding.EncodeToString([]byte("me:"+password)), "bWU6", "sent Basic [redacted login]"},
		"digest":          {`Authorization: Digest username="me", response="` + password + `"`, password, ""},
		"url with quote":  {"postgres://me:it's" + password + "@db/x", password, ""},
		"url with @":      {"redis://:@" + password + "@cache:6379", password, ""},
		"url of mail":     {"smtp://me@corp.com:" + password + "@smtp.corp.com", password, ""},
		"url with digits": {"redis://:1234/" + password + "@cache", password, ""},
		"escaped url":     {`"postgres:\/\/me:` + password + `@db"`, password, ""},
		"percent url": {"u=postgres%3A%2F%2Fme%3A" + "hunter2%40db", "hunter2",
			"u=postgres%3A%2F%2Fme%3A[redacted password of a URL]%40db"},
		"mysql": {"+ mysqldump -h db -ume -p" + password + " x", password,
			"+ mysqldump -h db -ume -p[redacted login] x"},
		"mysql words": {"['mysql', '-p" + password + "', 'x']", password, "['mysql', '-p[redacted login]', 'x']"},
		"mysql of Go": {"me:" + password + "@tcp(db:3306)/x", password, ""},
		"escaped &": {`"https://b/k?a=1\u0026X-Amz-Signature=0123456789abcdef\u0026b=2"`,
			"0123456789", `"https://b/k?a=1\u0026X-Amz-Signature=[redacted parameter of a URL]\u0026b=2"`},
		"kubeconfig": {"client-key-data: LS0tLS1CRUdJTi" + "BSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlF",
			"LS0t", ""},
		"docker": {`{"auths":{"r":{"auth":"bWU6` + `aHVudGVyMg=="}}}`, "bWU6",
			`{"auths":{"r":{"auth":"[redacted auth]"}}}`},
		"netrc, prefixed": {"[r0] machine a\n[r0]   login me\n[r0]   password " + password + "\n",
			password, ""},
		"wandb login": {"+ wandb login --relogin " + strings.Repeat("0a", 20), "0a0a",
			"+ wandb login --relogin [redacted login]"},
		"wandb code": {`wandb.login(key="` + strings.Repeat("0a", 20) + `")`, "0a0a",
			`wandb.login(key="[redacted login]")`},
		"requests":  {`requests.get(u, auth=("me", "` + password + `"))`, password, ""},
		"curl user": {"+ curl -s -u me:" + password + " https://x", password, ""},
		"azure": {"DefaultEndpointsProtocol=https;AccountName=x;AccountKey=ab+/cd==;EndpointSuffix=y", "ab+/",
			"DefaultEndpointsProtocol=https;AccountName=x;AccountKey=[redacted parameter of a URL];EndpointSuffix=y"},
		"key with slash": {"AWS_SECRET_ACCESS_KEY=/aB3+" + "bPxRfiCYEX", "bPxR", ""},
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
		"step 7 sec_per_token=0.0031 ms/token: 12.5ms token=4096 num_token=131072 eos_token: '</s>' pad_token='<pad>'",
		"Namespace(use_auth_token=True, hf_token=None, lr=0.1)",
		"error: --token is required; token: expected one argument",
		"Enter the password:\nTraceback (most recent call last):\n  File \"a.py\", line 1",
		"PWD=/home/me OLDPWD=/home/You/B GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp/key.json --private_key /etc/ssl/k.pem",
		"image r.io/x@sha256:" + strings.Repeat("0a", 32) + " commit " + strings.Repeat("0a", 20),
		"http://host:8080?u=me@x https://host:8080/a@b git+ssh://git@github.com:org/repo.git@v1.0",
		`MountVolume.SetUp failed for volume "x" : secret "hub" not found`,
		"forward_pass: 0.3s first_pass=true cache_key: abc partition key=users basic training",
		"KeyError: 'tokens' in dict(key='loss'); sorted(a, key=len)",
		"open /var/run/secrets/kubernetes.io/serviceaccount/token: no such file; /run/token: permission denied",
		"SyntaxError: unexpected token: ')' first token: 'hello'",
		"mysql -h db -P 3306 -p", "mysql -P3306",
		"connects to mysql on port 3306", "mysql --protocol=tcp", "mkdir -p /data/mysql",
		"docker run -u 1000:1000 x; curl -u 1000:1000 y",
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
		"more words": {`{"args": ["--wandb_key=x1", "--set=a.apiKey=y1", "wandb", "login", "z1"], "Env": ["A=b",
			"C=d"]}`,
			`{"args": ["--wandb_key=[redacted wandb_key]", "--set=a.apiKey=[redacted named]", "wandb", "login", ` +
				`"[redacted login]"], "Env": ["A=[redacted A]", "C=[redacted C]"]}`},
		"script": {`{"args": ["sh", "-c", "export HF_TOKEN=x1 && python a.py --epochs=2"]}`,
			`{"args": ["sh", "-c", "export HF_TOKEN=[redacted named] && python a.py --epochs=2"]}`},
		"docker": {`{"auths": {"r.io": {"auth": "bWU6eA=="}}}`, `{"auths": {"r.io": {"auth": "[redacted auth]"}}}`},
		"names": {`{"identitytoken": "x", "eos_token": "</s>"}`,
			`{"identitytoken": "[redacted identitytoken]", "eos_token": "</s>"}`},
		"numbers": {`{"password": 123456, "token": 4096}`, `{"password": "[redacted password]", "token": 4096}`},
		"by key":  {`{"key": "HF_TOKEN", "value": "x"}`, `{"key": "HF_TOKEN", "value": "[redacted HF_TOKEN]"}`},
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
	for name, c := range map[string]struct {
		tree, text, want string
	}{
		"script": {`{"args": ["sh", "-c", "HF_TOKEN=hunter2x python a.py"]}`, "use hunter2x",
			"use [redacted HF_TOKEN]"},
		"JSON": {`{"envs": {"CONF": "{\"password\":\"hunter2x\"}"}}`, "use hunter2x",
			"use [redacted password]"},
		"url": {`{"envs": {"DB": "postgres://me:hunter2x@db/x"}}`, "use hunter2x", "use [redacted secret]"},
		"rest of list": {`{"args": ["--envs=A_TOKEN=first-part,second-part"]}`, "use second-part",
			"use [redacted A_TOKEN]"},
		"path": {`{"envs": {"PWD": "/home/me", "G_CREDENTIALS": "/x/k.json"}}`,
			"/home/me/a.py /x/k.json", "/home/me/a.py /x/k.json"},
		"number": {`{"envs": {"EOS_TOKEN": "128001"}}`, "id 128001", "id 128001"},
		"slash": {`{"envs": {"S_KEY": "", "AWS_SECRET_ACCESS_KEY": "/aB3cdEFgh"}}`, "use /aB3cdEFgh",
			"use [redacted AWS_SECRET_ACCESS_KEY]"},
		"name of a data set": {`{"envs": {"DATASET": "imagenet", "SPLIT": "training-split", "N": "v2"}}`,
			"imagenet training-split v2", "imagenet training-split v2"},
		"UID": {`{"env": [{"name": "ELASTICDL_UID", "value": "01234567-89ab-cdef-0123-456789abcdef"}]}`,
			"of 01234567-89ab-cdef-0123-456789abcdef", "of 01234567-89ab-cdef-0123-456789abcdef"},
		"trace": {`{"envs": {"X": "it'shunter2-of-x"}}`, `+ X='it'\''shunter2-of-x'`, "+ X='[redacted X]'"},
	} {
		r := new(Redactor)
		r.Learn(tree(t, c.tree))
		if got := r.Text(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	r := new(Redactor)
	r.Known("KEYS", "first-line-1-of-it\nsecond-line-2-of-it")
	if got := r.Text("> second-line-2-of-it"); got != "> [redacted KEYS]" {
		t.Errorf("a line of a value: %q", got)
	}
}

// A long value is removed to its end.
func TestLongValue(t *testing.T) {
	for _, n := range []int{500, 511, 512, 513, 8191, 8192, 100_000} {
		for _, quote := range []string{"", `"`} {
			text := "password=" + quote + strings.Repeat("a", n) + quote + "\nb"
			if got := new(Redactor).Text(text); got != "password=[redacted named]\nb" {
				t.Errorf("%d bytes: %d are left", n, len(got))
			}
		}
	}
}

// BenchmarkText is about logs of 8 MiB: usual ones, usual ones with many known values, and those
// that want it slow.
func BenchmarkText(b *testing.B) {
	const size = 8 << 20
	step := "2026-11-27 15:47:58,123 INFO train.py:10 step 7 loss=0.31 tokens=4096 ms/token: 12.5 mem 71.2 GiB\n" +
		`[r0] {"level": "info", "msg": "saved s3://bucket/7.pt", "url": "https://minio:9000/bucket/x?part=7"}` + "\n"
	for name, c := range map[string]struct {
		line  string
		known int
	}{
		"usual":       {step, 0},
		"many values": {step, 1000},
		"names":       {"token=x ", 0},
		"URLs":        {"http://a:b", 0},
		"keys":        {"-----BEGIN " + "PRIVATE KEY-----\n", 0},
		"ends":        {"-----END " + "PRIVATE KEY-----\n", 0},
	} {
		b.Run(name, func(b *testing.B) {
			r := new(Redactor)
			for i := range c.known {
				r.Known("TOKEN", fmt.Sprintf("value-%d-/of \"a\" %x", i, i*7919))
			}
			text := strings.Repeat(c.line, size/len(c.line))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Text(text)
			}
		})
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
