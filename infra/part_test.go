package infra

import (
	"errors"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// All parts that do not fit are reported at once, in the order of the stack's file, each with all
// reasons. A part without a name is not looked up.
func TestLookUp(t *testing.T) {
	s := &settings.Settings{Project: "elasticdl"}
	all := []Part{
		{Path: "eks.efs.id", Name: "fs-1", Find: func(expect Expect) error {
			expect(false, "it is not %s", "encrypted")
			expect(true, "it is small")
			expect(false, "it has no mount target")
			return nil
		}},
		{Path: "eks.bucket.name", Name: "", Find: func(Expect) error {
			return errors.New("it is looked up without a name")
		}},
		{Path: "eks.vpc.id", Name: "vpc-1", Find: func(Expect) error { return errors.New("403") }},
	}
	want := "elasticdl:eks.vpc.id: vpc-1: look it up: 403\n" +
		"elasticdl:eks.efs.id: fs-1: it is not encrypted; it has no mount target"
	if err := LookUp(s, all); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if err := LookUp(s, all[1:2]); err != nil {
		t.Error(err)
	}
}

// A provider of the same cloud by another SDK is refused; those of other clouds are not ours.
func TestOfAnotherSDK(t *testing.T) {
	const want = "github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	for is, refused := range map[string]bool{want: false, "github.com/pulumi/pulumi-aws/sdk/v7/go/aws": true,
		"github.com/pulumi/pulumi-aws-native/sdk/go/aws": false,
		"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp":     false, "": false} {
		err := ofAnotherSDK(is, want)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "expected one of "+want) {
			t.Errorf("%s: %v", is, err)
		}
	}
}
