package settings

import (
	"reflect"
	"testing"
)

// withBudget is a valid budget by cloud.
var withBudget = map[string]string{
	"gke": "{monthly: 500, mail: [ops@example.com], billingAccount: 012345-567890-ABCDEF}",
	"eks": "{monthly: 500, mail: [ops@example.com]}",
}

// budgetMistakes are mistakes in a budget that is otherwise valid.
var budgetMistakes = []mistake{
	{cloud: "eks", path: "budget.monthly", want: "0: expected 1 to 1000000000"},
	{cloud: "eks", path: "budget.monthly", value: "500.5", want: "500.5: expected a whole number"},
	{cloud: "eks", path: "budget.monthly", value: "-5", want: "-5: expected 1 to 1000000000"},
	{cloud: "eks", path: "budget.mail", want: "missing: who gets the mail?"},
	{cloud: "eks", path: "budget.mail", value: "[ops]", at: "budget.mail[0]",
		want: "ops: expected an address, as ops@example.com"},
	{cloud: "eks", path: "budget.mail", value: "['Ops <ops@example.com>']", at: "budget.mail[0]",
		want: "expected an address, as ops@example.com"},
	{cloud: "gke", path: "budget.mail", value: "['a::b@example.com']", at: "budget.mail[0]",
		want: "a::b@example.com: expected an address"},
	{cloud: "eks", path: "budget.mail", value: "[a@b.c, a@b.c]", at: "budget.mail[1]", want: "a@b.c occurs twice"},
	{cloud: "gke", path: "budget.mail", value: "[a@b.c, b@b.c, c@b.c, d@b.c, e@b.c, f@b.c]",
		want: "6 addresses: expected at most 5: give that of a group"},
	{cloud: "eks", path: "budget.thresholds", value: "[]", want: "missing: expected one or more percentages"},
	{cloud: "eks", path: "budget.thresholds", value: "[10, 20, 30, 40, 50]", want: "5 percentages: expected at most 4"},
	{cloud: "eks", path: "budget.thresholds", value: "[90, 50]", at: "budget.thresholds[1]",
		want: "50: expected ascending percentages"},
	{cloud: "eks", path: "budget.thresholds", value: "[0]", at: "budget.thresholds[0]", want: "0: expected 1 to 1000"},
	{cloud: "gke", path: "budget.billingAccount", want: "missing: expected the ID of the project's billing account"},
	{cloud: "gke", path: "budget.billingAccount", value: "billingAccounts/012345-567890-ABCDEF",
		want: "billingAccounts/012345-567890-ABCDEF: expected the ID of the project's billing account, as"},
	{cloud: "eks", path: "budget.billingAccount", value: "012345-567890-ABCDEF",
		want: "012345-567890-ABCDEF: is for cloud: gke"},
	{cloud: "minikube", path: "budget", value: "{monthly: 1}",
		want: "is for what a cloud bills, and a stack on minikube makes nothing of that: remove it"},
	{cloud: "existing", path: "budget", value: "{monthly: 1}",
		want: "is for what a cloud bills, and a stack on existing makes nothing of that: remove it"},
}

func init() {
	mistakes = append(mistakes,
		mistake{cloud: "gke", path: "wait", value: "soon", want: "soon: expected a time of 0 to 2h, as 90s or 10m"},
		mistake{cloud: "gke", path: "wait", value: "3h", want: "3h: expected a time of 0 to 2h"},
		mistake{cloud: "gke", path: "wait", value: "'-1s'", want: "-1s: expected a time of 0 to 2h"})
	for _, m := range budgetMistakes {
		m.also = map[string]string{}
		if text := withBudget[m.cloud]; text != "" {
			m.also["budget"] = text
		}
		mistakes = append(mistakes, m)
	}
}

func TestBudget(t *testing.T) {
	config := stack(t, CloudGKE)
	set(t, config, "budget", withBudget["gke"])
	s, err := parsed(t, config)
	if err != nil {
		t.Fatal(err)
	}
	want := []Alert{{50, false}, {90, false}, {100, false}, {100, true}}
	if got := s.Budget.Alerts(); !reflect.DeepEqual(got, want) || s.Budget.Monthly != 500 ||
		s.Label() != "elasticdl-test" {
		t.Errorf("%v of %+v, label %s", got, s.Budget, s.Label())
	}
	set(t, config, "budget.thresholds", "[80]")
	set(t, config, "labels", "{elasticdl-stack: theirs}")
	if s, err = parsed(t, config); err != nil {
		t.Fatal(err)
	}
	if want := []Alert{{80, false}, {80, true}}; !reflect.DeepEqual(s.Budget.Alerts(), want) || s.Label() != "theirs" {
		t.Errorf("%v, label %s", s.Budget.Alerts(), s.Label())
	}
}
