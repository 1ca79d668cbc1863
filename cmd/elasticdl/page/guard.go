package page

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// tokenParameter is the parameter of an address that has the token.
const tokenParameter = "token"

// policy is the Content-Security-Policy of all answers: nothing but the server's own files.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard admits requests.
type guard struct {
	token string
	// name of the cookie: a browser may show several dashboards of this machine
	cookie string
	next   http.Handler
}

// newGuard returns a guard with a new token.
func newGuard(next http.Handler) *guard {
	token := rand.Text()
	sum := sha256.Sum256([]byte(token))
	return &guard{token: token, cookie: "elasticdl-" + hex.EncodeToString(sum[:4]), next: next}
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// with no-referrer the forms of the page would have no Origin
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case !loopback(r.Host):
		http.Error(w, "Host: expected localhost, 127.0.0.1 or [::1]", http.StatusForbidden)
	case r.Method != http.MethodGet && r.Method != http.MethodHead && !own(r):
		http.Error(w, "Origin: expected a page of this server", http.StatusForbidden)
	case r.URL.Query().Has(tokenParameter):
		g.greet(w, r)
	case !g.known(r):
		http.Error(w, "open the address that elasticdl dashboard has printed, with its token",
			http.StatusUnauthorized)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// greet answers a request with a token: with the cookie, and the same address without the token,
// which is then in no history.
func (g *guard) greet(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if !same(query.Get(tokenParameter), g.token) {
		http.Error(w, "the token is not that of this server: open the address that elasticdl dashboard has printed",
			http.StatusUnauthorized)
		return
	}
	query.Del(tokenParameter)
	to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: query.Encode()}
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.token, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	w.Header().Set("Location", to.String())
	w.WriteHeader(http.StatusSeeOther)
}

// known reports whether a request has the cookie.
func (g *guard) known(r *http.Request) bool {
	for _, c := range r.CookiesNamed(g.cookie) {
		if same(c.Value, g.token) {
			return true
		}
	}
	return false
}

// same compares secrets in a time that does not depend on them.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// loopback reports whether a Host names the loopback interface. The port may be another one: ssh -L
// forwards it.
func loopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Zone() == "" && ip.IsLoopback()
}

// own reports whether a request was made by a page of this server.
func own(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get("Origin") == "http://"+r.Host && (site == "" || site == "same-origin")
}

// address returns the address of a page, with the token.
func (g *guard) address(at net.Addr, path string) string {
	return fmt.Sprintf("http://%s%s?%s=%s", at, path, tokenParameter, g.token)
}
