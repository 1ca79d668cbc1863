//go:build !e2e

package main

import (
	"strings"
	"testing"
)

// A budget comes and changes without anything else, is no difference after a refresh, and is
// deleted without a word.
func TestBudget(t *testing.T) {
	t.Parallel()
	const (
		amazon  = "aws:budgets/budget:Budget budget"
		google  = "gcp:billing/budget:Budget budget"
		channel = "gcp:monitoring/notificationChannel:NotificationChannel mail-"
	)
	for _, test := range []struct {
		stack                string
		account              any
		comes, grows, leaves []string
		// a warning of the first preview, and of no later one
		note string
	}{
		{"eks", nil, []string{"create " + amazon},
			[]string{"update " + amazon + " limitAmount notifications[0] notifications[1] notifications[2] " +
				"notifications[3]"}, []string{"delete " + amazon},
			"the tag elasticdl-stack is activated"},
		{"gke", "012345-567890-ABCDEF", []string{"create " + channel + "ops@example.com", "create " + google,
			"create gcp:projects/service:Service billingbudgets", "create pulumi:providers:gcp billing"},
			[]string{"create " + channel + "ann@example.com", "delete " + channel + "ops@example.com",
				"update " + google + " allUpdatesRule.monitoringNotificationChannels[0] amount.specifiedAmount.units"},
			[]string{"delete " + channel + "ann@example.com", "delete " + google,
				"delete gcp:projects/service:Service billingbudgets", "delete pulumi:providers:gcp billing"}, ""},
	} {
		t.Run(test.stack, func(t *testing.T) {
			t.Parallel()
			e := start(t, test.stack)
			e.up()
			e.set("elasticdl:budget", map[string]any{"monthly": 300, "mail": []any{"ops@example.com"}})
			if test.account != nil {
				e.set("elasticdl:budget.billingAccount", test.account)
			}
			if said := e.warned(); !strings.Contains(said, "and budget.monthly is 300") ||
				!strings.Contains(said, test.note) {
				e.Errorf("the preview of a budget that is too small says\n%s", said)
			}
			e.expect("a budget", e.up(), test.comes...)
			e.unchangedAfterRefresh("a budget")
			e.set("elasticdl:budget.monthly", 3000)
			e.set("elasticdl:budget.mail", []any{"ann@example.com"})
			if said := e.warned(); strings.Contains(said, "budget.monthly") ||
				test.note != "" && strings.Contains(said, test.note) {
				e.Errorf("the preview of a budget that is large enough says\n%s", said)
			}
			e.expect("more money, and another address", e.up(), test.grows...)
			e.unchangedAfterRefresh("a larger budget")
			e.set("elasticdl:budget", nil)
			e.expect("no budget", e.up(), test.leaves...)
			e.set("elasticdl:budget", map[string]any{"monthly": 300, "mail": []any{"ops@example.com"},
				"billingAccount": test.account})
			e.set("elasticdl:protectStorage", false)
			e.up()
			e.destroy()
			e.cleared()
		})
	}
}
