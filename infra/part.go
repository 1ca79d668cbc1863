package infra

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// Part is a part of a stack that exists already, and that a setting names: a VPC, a file system, a
// bucket. The stack uses it, and never changes, protects or deletes it.
type Part struct {
	// Path of the setting: "eks.efs.id".
	Path string
	// Name of the part in the cloud; "" = there is no such part, and the stack may make one.
	Name string
	// Find looks up the part, and reports by expect what does not fit. An error says that the part
	// could not be looked up.
	Find func(expect Expect) error
}

// Expect adds a reason why a part does not fit, if ok is false: what was found, what is expected,
// and what to do.
type Expect func(ok bool, format string, args ...any)

// LookUp looks up parts that exist already, in the order of their list. It returns an error with
// all that do not fit, one a line, each with all reasons.
func LookUp(s *settings.Settings, all []Part) error {
	problems := &settings.Problems{Project: s.Project}
	for _, part := range all {
		if part.Name == "" {
			continue
		}
		var reasons []string
		err := part.Find(func(ok bool, format string, args ...any) {
			if !ok {
				reasons = append(reasons, fmt.Sprintf(format, args...))
			}
		})
		if err != nil {
			reasons = append(reasons, "look it up: "+err.Error())
		}
		problems.Check(len(reasons) == 0, part.Path, "%s: %s", part.Name, strings.Join(reasons, "; "))
	}
	return problems.Err()
}

// InvokeOptions returns the options of the look-ups that a component makes, from its own: they go
// to the provider that it is given, of type P, or to that of its parent. A provider of the same
// cloud by another version of its SDK is refused.
func InvokeOptions[P pulumi.ProviderResource](opts []pulumi.ResourceOption) ([]pulumi.InvokeOption, error) {
	given, err := pulumi.NewResourceOptions(opts...)
	if err != nil {
		return nil, err
	}
	all := append(slices.Clone(given.Providers), given.Provider)
	for _, p := range all {
		if p, ok := p.(P); ok {
			return []pulumi.InvokeOption{pulumi.Provider(p)}, nil
		}
	}
	want := reflect.TypeFor[P]().Elem().PkgPath()
	for _, p := range all {
		if is := reflect.TypeOf(p); is != nil && is.Kind() == reflect.Pointer {
			if err := ofAnotherSDK(is.Elem().PkgPath(), want); err != nil {
				return nil, err
			}
		}
	}
	if given.Parent != nil {
		return []pulumi.InvokeOption{pulumi.Parent(given.Parent)}, nil
	}
	return nil, nil
}

// ofAnotherSDK returns an error if a package of providers is that of the wanted cloud in another
// version of its SDK.
func ofAnotherSDK(is, want string) error {
	of, _, _ := strings.Cut(is, "/sdk/")
	wanted, _, _ := strings.Cut(want, "/sdk/")
	if is == want || of != wanted {
		return nil
	}
	return fmt.Errorf("the provider is one of %s: expected one of %s, by which the cluster is made", is, want)
}
