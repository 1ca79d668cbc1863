package main

import (
	"strings"
	"testing"
)

// Failed tests are shown with their output, passed ones are not, and skipped ones are listed at the
// end with the reason.
func TestReport(t *testing.T) {
	in := strings.Join([]string{
		`{"Action":"start","Package":"p"}`,
		`{"Action":"output","Package":"p","Output":"-test.shuffle 17\n"}`,
		`{"Action":"run","Package":"p","Test":"TestGood"}`,
		`{"Action":"output","Package":"p","Test":"TestGood","Output":"a good word\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":2.4}`,
		`{"Action":"output","Package":"p","Test":"TestBad","Output":"=== RUN   TestBad\n"}`,
		`{"Action":"output","Package":"p","Test":"TestBad","Output":"    p_test.go:3: a bad word\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":0}`,
		`{"Action":"output","Package":"p","Test":"TestSet/avx512","Output":"=== RUN   TestSet/avx512\n"}`,
		`{"Action":"output","Package":"p","Test":"TestSet/avx512","Output":"    p_test.go:9: no such processor: generic\n"}`,
		`{"Action":"output","Package":"p","Test":"TestSet/avx512","Output":"    --- SKIP: TestSet/avx512 (0.00s)\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestSet/avx512","Elapsed":0}`,
		`{"Action":"output","Package":"p","Test":"TestHangs","Output":"the last word\n"}`,
		`{"Action":"output","Package":"p","Output":"FAIL\tp\t3s\n"}`,
		`{"Action":"fail","Package":"p","Elapsed":3}`,
		`{"Action":"output","Package":"q","Output":"-test.shuffle 18\n"}`,
		`{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}`,
		`{"ImportPath":"r","Action":"build-output","Output":"r.go:1: syntax error\n"}`,
		`no event`,
	}, "\n")
	const want = `=== RUN   TestBad
    p_test.go:3: a bad word
FAIL	p	3s
-test.shuffle 17
the last word
r.go:1: syntax error
no event1 tests passed; longest: p TestGood 2s
1 tests skipped:
  p TestSet/avx512: no such processor: generic
`
	var out strings.Builder
	if err := report(strings.NewReader(in), &out); err != nil || out.String() != want {
		t.Errorf("%v, and\n%s\nwant\n%s", err, &out, want)
	}
}
