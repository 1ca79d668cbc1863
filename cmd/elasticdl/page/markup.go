package page

import (
	"strings"

	"golang.org/x/net/html"
)

// piece adds an attribute or content to an element. Its texts are escaped when the element is
// rendered: a piece cannot add markup. Package html/template would escape them, too, but looks up
// methods by reflection: the linker would keep all exported methods of the program, a third of its
// size.
type piece func(*html.Node)

// el adds an element.
func el(name string, all ...piece) piece {
	return func(parent *html.Node) {
		n := &html.Node{Type: html.ElementNode, Data: name}
		group(all...)(n)
		parent.AppendChild(n)
	}
}

// text adds text.
func text(words ...string) piece {
	return func(parent *html.Node) {
		parent.AppendChild(&html.Node{Type: html.TextNode, Data: strings.Join(words, "")})
	}
}

// line ends a line, which separates elements as a space does.
var line = text("\n")

// with adds attributes of constant names: name, value, name, value.
func with(pairs ...string) piece {
	return func(n *html.Node) {
		for i := 0; i+1 < len(pairs); i += 2 {
			n.Attr = append(n.Attr, html.Attribute{Key: pairs[i], Val: pairs[i+1]})
		}
	}
}

// class adds the attribute class.
func class(names ...string) piece { return with("class", strings.Join(names, " ")) }

// href adds the address of a link.
func href(address string) piece { return with("href", ownAddress(address)) }

// action adds the address of a form.
func action(address string) piece { return with("action", ownAddress(address)) }

// ownAddress returns an address of this server, or "#" in place of another one.
func ownAddress(address string) string {
	if strings.HasPrefix(address, "?") || strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "//") &&
		!strings.Contains(address, `\`) {
		return address
	}
	return "#"
}

// group adds pieces.
func group(all ...piece) piece {
	return func(n *html.Node) {
		for _, p := range all {
			p(n)
		}
	}
}

// when adds pieces if a condition holds.
func when(holds bool, all ...piece) piece {
	if !holds {
		return func(*html.Node) {}
	}
	return group(all...)
}

// either adds one of two pieces.
func either(holds bool, one, other piece) piece {
	if holds {
		return one
	}
	return other
}

// each adds a piece for each value.
func each[T any](all []T, one func(T) piece) piece {
	return func(n *html.Node) {
		for _, v := range all {
			one(v)(n)
		}
	}
}

// render renders pieces that are no attributes.
func render(all ...piece) (string, error) {
	n := &html.Node{Type: html.DocumentNode}
	group(all...)(n)
	var b strings.Builder
	err := html.Render(&b, n)
	return b.String(), err
}
