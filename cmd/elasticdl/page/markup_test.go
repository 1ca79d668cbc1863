package page

import "testing"

// Texts and attributes are escaped, and an address of somebody else is none.
func TestMarkup(t *testing.T) {
	for want, p := range map[string]piece{
		`<p title="&#34;&gt;&lt;b&gt;">&lt;b&gt;&amp;</p>`: el("p", with("title", `"><b>`), text("<b>", "&")),
		`<pre>` + "\n\n" + `x</pre>`:                       el("pre", text("\nx")),
		`<a href="/job/a">a</a><a href="?q=x">b</a>`: group(el("a", href("/job/a"), text("a")),
			el("a", href("?q=x"), text("b"))),
		`<a href="#"></a>`:             el("a", href("javascript:alert(1)")),
		`<a href="#" class="b c"></a>`: el("a", href("//evil.example/"), class("b", "c")),
		`<form action="#"></form>`:     el("form", action(`/\evil.example/`)),
		`<i>1</i><i>2</i>`:             each([]string{"1", "2"}, func(v string) piece { return el("i", text(v)) }),
		`1`:                            group(when(true, text("1")), when(false, text("2"))),
		`2`:                            either(false, text("1"), text("2")),
	} {
		if got, err := render(p); got != want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
