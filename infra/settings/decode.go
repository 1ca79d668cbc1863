package settings

import (
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// encoding/json reports only the first unknown field, without its path, and ignores the case of
// names: decode has the features of it that a stack's file needs.

// read returns the value of one key of the configuration: decoded JSON if the engine encoded a
// section, else the text itself.
func read(text string) any {
	if text == "" { // a key without a value
		return nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return text
	}
	if _, err := d.Token(); err != io.EOF {
		return text
	}
	return v
}

type field struct {
	name string
	of   reflect.StructField
}

// fields returns the fields of a struct that a file may set, including those of embedded structs.
func fields(t reflect.Type) iter.Seq[field] {
	return func(yield func(field) bool) {
		for _, of := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(of.Tag.Get("json"), ",")
			if name != "" && name != "-" && !yield(field{name, of}) {
				return
			}
		}
	}
}

// decode writes v to dst. Fields that v does not have keep their values, which are the defaults.
// Optional sections differ: absent ones become nil, and present ones keep their defaults. Empty
// maps and lists become nil.
func decode(v any, dst reflect.Value, path string, p *Problems) {
	if v == nil {
		if dst.Kind() == reflect.Pointer {
			dst.SetZero()
		}
		return
	}
	if u, ok := dst.Addr().Interface().(encoding.TextUnmarshaler); ok {
		text, ok := asText(v)
		if !ok {
			p.Check(false, path, "%s: expected text", show(v))
		} else if err := u.UnmarshalText([]byte(text)); err != nil {
			p.Check(false, path, "%s: %v", text, err)
		}
		return
	}
	switch dst.Kind() {
	case reflect.Pointer:
		if dst.IsNil() {
			dst.Set(reflect.New(dst.Type().Elem()))
		}
		decode(v, dst.Elem(), path, p)
	case reflect.Struct:
		decodeSection(v, dst, path, p)
	case reflect.Map:
		decodeMap(v, dst, path, p)
	case reflect.Slice:
		all, ok := v.([]any)
		p.Check(ok, path, "%s: expected a list", show(v))
		dst.SetZero()
		for i, e := range all {
			dst.Set(reflect.Append(dst, reflect.Zero(dst.Type().Elem())))
			decode(e, dst.Index(i), fmt.Sprintf("%s[%d]", path, i), p)
		}
	default:
		decodeScalar(v, dst, path, p)
	}
}

func decodeSection(v any, dst reflect.Value, path string, p *Problems) {
	section, ok := v.(map[string]any)
	if !ok {
		p.Check(false, path, "%s: expected a section, with fields below it", show(v))
		return
	}
	var known []string
	for f := range fields(dst.Type()) {
		known = append(known, f.name)
		value, given := section[f.name]
		at := dst.FieldByIndex(f.of.Index)
		if !given && at.Kind() == reflect.Pointer {
			at.SetZero()
		}
		if given {
			decode(value, at, Join(path, f.name), p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(section)) {
		p.Check(slices.Contains(known, name), Join(path, name), "unknown field%s", nearest(name, known))
	}
}

func decodeMap(v any, dst reflect.Value, path string, p *Problems) {
	section, ok := v.(map[string]any)
	if !ok {
		p.Check(false, path, "%s: expected names with values below it", show(v))
		return
	}
	dst.SetZero()
	if len(section) > 0 {
		dst.Set(reflect.MakeMap(dst.Type()))
	}
	for _, name := range slices.Sorted(maps.Keys(section)) {
		e := reflect.New(dst.Type().Elem()).Elem()
		decode(section[name], e, Join(path, name), p)
		dst.SetMapIndex(reflect.ValueOf(name), e)
	}
}

func decodeScalar(v any, dst reflect.Value, path string, p *Problems) {
	number, isNumber := v.(json.Number)
	switch dst.Kind() {
	case reflect.String:
		text, ok := asText(v)
		p.Check(ok, path, "%s: expected text: write it in quotes", show(v))
		dst.SetString(text)
	case reflect.Bool:
		b, ok := v.(bool)
		p.Check(ok, path, "%s: expected true or false", show(v))
		dst.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(number.String(), 10, min(dst.Type().Bits(), 64))
		if ok := isNumber && err == nil && n <= math.MaxInt32 && n >= math.MinInt32; !ok {
			p.Check(false, path, "%s: expected a whole number", show(v))
			return
		}
		dst.SetInt(n)
	case reflect.Uint64:
		n, err := strconv.ParseUint(number.String(), 10, 64)
		p.Check(isNumber && err == nil, path, "%s: expected a whole number of 0 or more", show(v))
		dst.SetUint(n)
	case reflect.Float64:
		x, err := number.Float64()
		p.Check(isNumber && err == nil, path, "%s: expected a number", show(v))
		dst.SetFloat(x)
	default:
		panic("settings: no " + dst.Type().String() + " is decoded") // a test decodes every field
	}
}

// asText returns a value as text. It accepts whole numbers, `cpu: 2`, but not 1.30, which YAML
// reads as 1.3.
func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), !strings.ContainsAny(v.String(), ".eE")
	}
	return "", false
}

// show returns a value for an error message: as JSON, shortened if it is long.
func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if r := []rune(string(text)); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return string(text)
}

// Join returns a path as `pulumi config set --path` accepts it.
func Join(path, name string) string {
	switch {
	case name == "" || strings.ContainsAny(name, `.[]"`):
		return path + "[" + strconv.Quote(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}
