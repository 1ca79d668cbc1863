package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var (
	program = flag.String("elasticdl", "", "path of elasticdl")
	fakes   = flag.String("page", "", "path of the test binary of cmd/elasticdl/page")
	data    = flag.String("data", "", "directory of digits: elasticdl dataset mnist")
	shots   = flag.String("shots", "", "directory in which screenshots are written; empty: none")
)

// limit is the time within which a page shows what it is to show.
const limit = 30 * time.Second

// browse opens a page of Chromium, which ends with the test.
func browse(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1280, 900),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true))
	all, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(cancel)
	ctx, end := chromedp.NewContext(all)
	t.Cleanup(end)
	if err := chromedp.Listen(ctx, func(e any) {
		if problem := problemOf(e); problem != "" {
			t.Errorf("the browser says: %s", problem)
		}
	}); err != nil {
		t.Fatal(err)
	}
	do(ctx, t, command(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"}))
	return ctx
}

// do performs actions in the browser.
func do(ctx context.Context, t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := chromedp.Do(limited, actions...); err != nil {
		text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
		t.Fatalf("%v; the page:\n%.2000s", err, text)
	}
}

// command returns a command of the browser.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, c, params)
		return err
	})
}

// value returns the value of an expression in the page, or that of its promise.
func value[T any](ctx context.Context, t *testing.T, expression string) T {
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	v, err := chromedp.Run(limited, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// codes has the codes of keys that are no letters, which the browser itself acts on.
var codes = map[string]int64{"Enter": 13, "Tab": 9, "Escape": 27}

// press presses a key that writes nothing. Chromedp's own sends the letter, too, as another event,
// which a page cannot prevent.
func press(key string) chromedp.Action[chromedp.Void] {
	p := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: key,
		WindowsVirtualKeyCode: codes[key]}
	up := p
	up.Type = input.DispatchKeyEventTypeKeyUp
	return chromedp.Steps(command(input.DispatchKeyEvent, p), command(input.DispatchKeyEvent, up))
}

// eventually waits until an expression of the page is true.
func eventually(ctx context.Context, t *testing.T, expression string) {
	t.Helper()
	for end := time.Now().Add(limit); !value[bool](ctx, t, expression); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s is not true:\n%s", expression, text(ctx, t))
		}
	}
}

// content returns the text of an element.
func content(ctx context.Context, t *testing.T, selector string) string {
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	text, err := chromedp.Run(limited, chromedp.Text(selector))
	if err != nil {
		t.Fatalf("%s: %v", selector, err)
	}
	return text
}

// text returns the text of the page.
func text(ctx context.Context, t *testing.T) string {
	t.Helper()
	return value[string](ctx, t, `document.body.innerText`)
}

// wants checks that the page shows texts.
func wants(ctx context.Context, t *testing.T, texts ...string) {
	t.Helper()
	shown := text(ctx, t)
	for _, want := range texts {
		if !strings.Contains(shown, want) {
			t.Errorf("the page does not show %q:\n%s", want, shown)
		}
	}
}

// shoot writes a screenshot of what is seen.
func shoot(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	if *shots == "" {
		return
	}
	image, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
	if err == nil {
		err = os.WriteFile(filepath.Join(*shots, name+".png"), image.Data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// scheme sets the colour scheme that the user prefers.
func scheme(name string) chromedp.Action[chromedp.Void] {
	return command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// serve starts a server of a fake job and returns its address.
func serve(t *testing.T, name string) string {
	t.Helper()
	if *fakes == "" {
		t.Fatal("no test binary of the page: make test-page")
	}
	cmd := exec.Command(*fakes)
	cmd.Env = append(os.Environ(), "ELASTICDL_PAGE_FAKE="+name)
	return started(t, cmd)
}

// started starts a command that prints an address and ends with its standard input, or by SIGTERM.
func started(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Signal(syscall.SIGTERM)
		io.Copy(io.Discard, out)
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line[strings.Index(line, "http://") : len(line)-1]
}

// A job in trouble shows its trouble: a stuck rank, a full disk, a kill, and why a worker does not
// start. In both schemes.
func TestTrouble(t *testing.T) {
	ctx := browse(t)
	do(ctx, t, chromedp.EmulateViewport(1280, 1000), scheme("light"), chromedp.Navigate(serve(t, "trouble")),
		chromedp.WaitVisible("#jobs-title"))
	if at := value[string](ctx, t, `location.search`); at != "" {
		t.Errorf("the token is in the address: %s", at)
	}
	do(ctx, t, chromedp.Click("main a[href='/job/llm-finetune']"), chromedp.WaitVisible("#state"))
	wants(ctx, t, "no progress for 1m: rank 3 differs: sleep at data.py:12; ranks 0-2: all_reduce at train.py:41",
		"no space left on /mnt/checkpoints", "Unschedulable", "killed (signal 9)", "Stuck",
		"preempted: node gpu-7 is taken back")
	shoot(ctx, t, "dashboard")
	do(ctx, t, scheme("dark"))
	if ground := value[string](ctx, t,
		`getComputedStyle(document.body).backgroundColor`); ground != "rgb(14, 17, 22)" {
		t.Errorf("dark: %s", ground)
	}
	shoot(ctx, t, "dashboard-dark")
	// only files of the server
	if other := value[int](ctx, t,
		`performance.getEntriesByType("resource")
		.filter((r) => !r.name.startsWith(location.origin)).length`); other != 0 {
		t.Errorf("%d requests to others", other)
	}
}

// All that a page says can be read, filtered and opened without scripts.
func TestWithoutScripts(t *testing.T) {
	ctx := browse(t)
	do(ctx, t, command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}),
		chromedp.Navigate(serve(t, "trouble")),
		chromedp.WaitVisible("main a[href='/job/llm-finetune']"), chromedp.Click("main a[href='/job/llm-finetune']"),
		chromedp.WaitVisible("#chart-loss svg"))
	shown := content(ctx, t, "main")
	if !strings.Contains(shown, "268,800 of 500,000 records") || !strings.Contains(shown, "checkpoint 3 written") {
		t.Errorf("without scripts:\n%s", shown)
	}
	do(ctx, t, chromedp.SendKeys("#filter", "worker-2 memory"), chromedp.Submit("#filter"),
		chromedp.WaitVisible(`#filter[value="worker-2 memory"]`))
	shown = content(ctx, t, ".events")
	if strings.Contains(shown, "checkpoint 3") || !strings.Contains(shown, "out of memory") {
		t.Errorf("filtered: %s", shown)
	}
	do(ctx, t, chromedp.Click("#pods-title + .scroll a[href$='/log/worker-5']"), chromedp.WaitVisible("pre.log"),
		chromedp.Click(".crumbs a[href='/job/llm-finetune']"), chromedp.WaitVisible(".stacks button"),
		chromedp.Click(".stacks button"), chromedp.WaitVisible("pre.log"))
	shown = content(ctx, t, "pre.log")
	if !strings.Contains(shown, "rank 3: sleep at data.py:12") {
		t.Errorf("stacks: %s", shown)
	}
}

// The keyboard reaches everything: the rows by j and k, the filter by /, the help by ?, and by Tab
// each link in the order in which it is seen, after a link that skips the head.
func TestKeyboard(t *testing.T) {
	ctx := browse(t)
	do(ctx, t, chromedp.Navigate(serve(t, "trouble")), chromedp.WaitVisible("[data-row]"), press("j"),
		press("Enter"), chromedp.WaitVisible("#chart-loss"))
	active := func() string {
		return value[string](ctx, t, `document.activeElement.id || document.activeElement.className`)
	}
	do(ctx, t, press("Tab"))
	if got := active(); got != "skip" {
		t.Errorf("the first Tab leads to %q", got)
	}
	do(ctx, t, press("j"), press("j"), press("k"))
	if got := active(); !strings.HasPrefix(got, "e-") {
		t.Errorf("j j k leads to %q", got)
	}
	first := value[string](ctx, t, `document.querySelector("[data-row]").id`)
	if got := active(); got != first {
		t.Errorf("j j k leads to %q, want %q", got, first)
	}
	do(ctx, t, chromedp.Sleep(1500*time.Millisecond)) // it is fetched again meanwhile
	if got := active(); got != first {
		t.Errorf("after a refresh the focus is at %q, want %q", got, first)
	}
	do(ctx, t, press("/"))
	if got := active(); got != "filter" {
		t.Errorf("/ leads to %q", got)
	}
	do(ctx, t, chromedp.KeyEvent("worker-1"))
	if got := value[string](ctx, t, `document.activeElement.value`); got != "worker-1" {
		t.Errorf("typed %q", got)
	}
	eventually(ctx, t, `!document.querySelector(".events").textContent.includes("checkpoint 3 written")`)
	eventually(ctx, t, `location.search === "?q=worker-1"`) // a letter after the other
	if active() != "filter" {
		t.Errorf("the focus is at %q", active())
	}
	do(ctx, t, press("Escape"), press("w"), press("?"), chromedp.WaitVisible("#help"))
	if got := value[string](ctx, t, `location.search`); got != "?warnings=1" {
		t.Errorf("w makes %q", got)
	}
	do(ctx, t, press("Escape"), chromedp.WaitNotVisible("#help"), press("u"),
		chromedp.WaitVisible("#jobs-title"))
}

// A phone shows everything in its width.
func TestPhone(t *testing.T) {
	ctx := browse(t)
	do(ctx, t, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateScale(1)), scheme("light"),
		chromedp.Navigate(serve(t, "trouble")), chromedp.WaitVisible("#jobs-title"))
	for _, click := range []string{"", "main a[href='/job/llm-finetune']"} {
		if click != "" {
			do(ctx, t, chromedp.Click(click), chromedp.WaitVisible("#state"))
		}
		if wide := value[int](ctx, t, `document.documentElement.scrollWidth`); wide > 390 {
			t.Errorf("%q: %d pixels wide: %s", click, wide, value[string](ctx, t,
				`[...document.querySelectorAll("main *")]
				.filter((e) => e.getBoundingClientRect().right > 391 && !e.closest(".scroll, pre, svg")).slice(0,
					5).map((e) => e.className || e.tagName).join()`))
		}
	}
	shoot(ctx, t, "dashboard-phone")
}

// Limits of the largest page, a third above what it has.
const (
	mostElements = 3000
	mostBytes    = 200_000
)

// The page of a job of 1,000 workers and 100,000 tasks stays small, so that it is seen at once. Its
// first paint, within 200 ms on an idle machine, is written to the log only.
func TestPaint(t *testing.T) {
	ctx := browse(t)
	address := serve(t, "large")
	do(ctx, t, chromedp.Navigate(address), chromedp.WaitVisible("main a[href='/job/large']"))
	origin := value[string](ctx, t, `location.origin`)
	var paints, answers []float64
	for range 9 {
		do(ctx, t, chromedp.Navigate(origin+"/job/large"), chromedp.WaitVisible("#timeline-title"))
		paints = append(paints, value[float64](ctx, t, `new Promise((resolve) => { const look = () => {
			const p = performance.getEntriesByName("first-contentful-paint")[0];
			p ? resolve(p.startTime) : setTimeout(look, 10); }; look(); })`))
		answers = append(answers, value[float64](ctx, t, `performance.getEntriesByType("navigation")[0].responseEnd`))
	}
	slices.Sort(paints)
	slices.Sort(answers)
	t.Logf("first paint: median %.0f ms of %.0f; answer: median %.0f ms", paints[len(paints)/2], paints,
		answers[len(answers)/2])
	elements := value[int](ctx, t, `document.querySelectorAll("*").length`)
	bytes := value[int](ctx, t, `performance.getEntriesByType("navigation")[0].decodedBodySize`)
	t.Logf("%d elements, %d bytes", elements, bytes)
	if elements > mostElements || bytes > mostBytes {
		t.Errorf("%d elements in %d bytes, expected %d in %d at most", elements, bytes, mostElements, mostBytes)
	}
	shoot(ctx, t, "dashboard-large")
}

// A worker that is killed is seen within 10 s: its end with the reason, its replacement, and the
// recovery.
func TestKill(t *testing.T) {
	if *program == "" || *data == "" {
		t.Fatal("no program: make test-page")
	}
	env := append(os.Environ(), "ELASTICDL_HOME="+t.TempDir(), "KUBECONFIG="+filepath.Join(t.TempDir(), "none"))
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command(*program, args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	run("train", "--runtime=local", "--detach", "--job_name=kill-me", "--model_def=mnist.mnist_mlp.custom_model",
		"--training_data="+filepath.Join(*data, "train"), "--num_epochs=10000", "--minibatch_size=64",
		"--num_ps_pods=1",
		"--num_workers=2", "--distribution_strategy=ParameterServerStrategy")
	t.Cleanup(func() { run("stop", "kill-me") })
	cmd := exec.Command(*program, "dashboard", "kill-me")
	cmd.Env = env
	ctx := browse(t)
	do(ctx, t, chromedp.Navigate(started(t, cmd)), chromedp.WaitVisible("#state.live"),
		chromedp.WaitVisible("#chart-speed"),
		chromedp.WaitVisible("//a[@class='lane-name' and text()='worker-1']"))
	var s struct {
		Pods []struct {
			Role  string
			Index int
			Pid   int
		}
	}
	if err := json.Unmarshal(run("status", "kill-me", "-o", "json"), &s); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for _, p := range s.Pods {
		if p.Role == "WORKER" && p.Index == 1 {
			pid = p.Pid
		}
	}
	if pid == 0 {
		t.Fatalf("no process of worker-1: %+v", s)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	within, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := chromedp.Do(within,
		chromedp.WaitVisible("//ol[@class='events']/li[contains(., 'worker-1') and contains(., 'PodLost') and "+
			"contains(., 'signal 9')]"),
		chromedp.WaitReady("//*[local-name()='line' and @class='lost']/*[contains(text(), 'worker-1') and "+
			"contains(text(), 'signal 9')]"),
		chromedp.WaitVisible("//a[@class='lane-name' and text()='worker-2']"),
		chromedp.WaitVisible("//ol[@class='events']/li[contains(., 'Recovered')]"))
	if err != nil {
		t.Fatalf("%v: not seen within 10s:\n%s", err, text(ctx, t))
	}
	t.Logf("the kill, the replacement and the recovery are seen after %v",
		time.Since(killed).Round(100*time.Millisecond))
	do(ctx, t, chromedp.Click("#pods-title + .scroll a[href$='/log/worker-2']"), chromedp.WaitVisible("pre.log"))
	wants(ctx, t, "Log of worker-2", "worker")
}
