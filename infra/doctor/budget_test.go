package doctor

import (
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// The rights that a budget needs are asked for, and the account that pays, and the tag that counts.
func TestBudget(t *testing.T) {
	budget := func(s *settings.Settings) *settings.Settings {
		with := *s
		with.Budget = &settings.Budget{Monthly: 500, Mail: []string{"ops@example.com"},
			BillingAccount: "012345-567890-ABCDEF"}
		return &with
	}
	google := with(google, "gcloud billing projects describe my-project", "billingAccounts/012345-567890-ABCDEF\n",
		"gcloud billing accounts get-iam-policy 012345-567890-ABCDEF", "roles/billing.viewer\nroles/billing.admin\n")
	amazon := with(amazon, "aws ce list-cost-allocation-tags --tag-keys elasticdl-stack", "elasticdl-stack\n")
	for name, test := range map[string]struct {
		m Machine
		s *settings.Settings
		// the beginnings of the findings that are not ok, one a line
		want string
	}{
		"google": {machine(google, ofGoogle...), inGoogle, ""},
		"another account": {machine(with(google, "gcloud billing projects describe my-project",
			"billingAccounts/FFFFFF-567890-ABCDEF\n"), ofGoogle...), inGoogle,
			"MISSING billing account: FFFFFF-567890-ABCDEF pays for my-project, and the budget of 012345"},
		"no account": {machine(with(google, "gcloud billing projects describe my-project", "\n"), ofGoogle...),
			inGoogle, "MISSING billing account: none pays for my-project"},
		"no answer": {machine(with(google, "gcloud billing projects describe my-project", "error: 403",
			"gcloud billing accounts get-iam-policy 012345-567890-ABCDEF", "error: 403"), ofGoogle...), inGoogle,
			"unknown billing account: that of the project: 403\nunknown budget: rights of 012345-567890-ABCDEF: 403"},
		"roles": {machine(with(google, "gcloud billing accounts get-iam-policy 012345-567890-ABCDEF",
			"roles/billing.viewer\n"), ofGoogle...), inGoogle, "note budget: not given to me@example.com itself"},
		"roles of the project": {machine(with(google, "gcloud projects get-iam-policy",
			strings.Join(googleRoles(inGoogle), "\n")), ofGoogle...), inGoogle,
			"note roles: not given to me@example.com itself, perhaps by a group: roles/monitoring."},
		"amazon": {machine(amazon, ofAmazon...), inAmazon, ""},
		"no tag": {machine(with(amazon, "aws ce list-cost-allocation-tags --tag-keys elasticdl-stack", "None\n"),
			ofAmazon...), inAmazon, "note budget: it counts nothing until the tag elasticdl-stack is activated"},
		"a member of an organization": {machine(with(amazon,
			"aws ce list-cost-allocation-tags --tag-keys elasticdl-stack", "error: AccessDenied"), ofAmazon...),
			inAmazon, "unknown budget: whether the tag elasticdl-stack is activated: AccessDenied"},
	} {
		var got []string
		asked := ""
		run := test.m.Run
		test.m.Run = func(program string, args ...string) (string, error) {
			asked += program + " " + strings.Join(args, " ") + "\n"
			return run(program, args...)
		}
		stack := "gke"
		if test.s.EKS != nil {
			stack = "eks"
		}
		for _, f := range Examine(test.m, stack, budget(test.s), nil) {
			if f.State != OK {
				got = append(got, string(f.State)+" "+f.Name+": "+f.Text)
			}
		}
		var want []string
		if test.want != "" {
			want = strings.Split(test.want, "\n")
		}
		same := len(got) == len(want)
		for i := 0; same && i < len(got); i++ {
			same = strings.HasPrefix(got[i], want[i])
		}
		if !same {
			t.Errorf("%s: found\n\t%s\nwant\n\t%s", name, strings.Join(got, "\n\t"), test.want)
		}
		if test.s.EKS != nil && !strings.Contains(asked, " budgets:ModifyBudget") {
			t.Errorf("%s: the right to make budgets is not asked for", name)
		}
	}
}
