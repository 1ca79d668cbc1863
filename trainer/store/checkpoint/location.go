package checkpoint

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// ParseLocation reads the name of a place, which package bucket opens: the path of a directory, for
// which it returns nil, or s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, whose path has no slash at its
// end.
func ParseLocation(location string) (*url.URL, error) {
	const expected = "expected a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
	if location == "" {
		return nil, errors.New("it is empty; " + expected)
	}
	scheme, _, isURL := strings.Cut(location, "://")
	if !isURL {
		return nil, nil
	}
	if scheme != "s3" && scheme != "gs" {
		return nil, fmt.Errorf("%s: unknown kind of place %q; %s", location, scheme, expected)
	}
	u, err := url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, expected)
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), ""
	switch {
	case u.Host == "":
		return nil, fmt.Errorf("%s: the bucket is missing; %s", location, expected)
	case u.User != nil || strings.Contains(u.Host, ":"):
		return nil, fmt.Errorf("%s: %q is no bucket; %s; the address of a store goes into ?endpoint=",
			location, location[len(scheme)+3:], expected)
	case u.Fragment != "" || strings.Contains(location, "#"):
		return nil, fmt.Errorf("%s: a # in it; %s", location, expected)
	case u.Path != "" && (path.Clean(u.Path) != u.Path || u.Path == "/"):
		return nil, fmt.Errorf("%s: %q is no prefix: empty parts, . and .. have no meaning in a "+
			"bucket; %s", location, u.Path, expected)
	case u.Query().Has("prefix"):
		return nil, fmt.Errorf("%s: ?prefix= is not taken; write it after the bucket: %s://%s/%s",
			location, scheme, u.Host, u.Query().Get("prefix"))
	}
	return u, nil
}
