package gke

import (
	"fmt"
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

const (
	typeBudget  = "gcp:billing/budget:Budget"
	typeChannel = "gcp:monitoring/notificationChannel:NotificationChannel"
)

// A budget counts what has the stack's label in the stack's project, and mails each address when a
// threshold is reached and when the greatest one is expected to be.
func TestBudget(t *testing.T) {
	each(t, func(t *testing.T, s *settings.Settings, all []graph.Resource) {
		if s.Budget == nil {
			if len(of(all, typeBudget))+len(of(all, typeChannel))+len(of(all, "pulumi:providers:gcp")) > 0 ||
				graph.Find(all, typeService, "billingbudgets") != nil {
				t.Error("there is a budget that nobody asked for")
			}
			return
		}
		b := find(t, all, typeBudget, "budget")
		want(t, b, "billingAccount=012345-567890-ABCDEF", "amount.specifiedAmount.units=500",
			"amount.specifiedAmount.currencyCode", "budgetFilter.projects[0]=projects/4711", "budgetFilter.projects[1]",
			"budgetFilter.labels.elasticdl-stack=elasticdl-test", "budgetFilter.calendarPeriod=MONTH")
		want(t, b, "thresholdRules[0].thresholdPercent=0.5", "thresholdRules[1].thresholdPercent=0.9",
			"thresholdRules[2].thresholdPercent=1", "thresholdRules[2].spendBasis=CURRENT_SPEND",
			"thresholdRules[3].thresholdPercent=1", "thresholdRules[3].spendBasis=FORECASTED_SPEND",
			"thresholdRules[4]")
		for i, mail := range s.Budget.Mail {
			channel := at(t, b, fmt.Sprintf("allUpdatesRule.monitoringNotificationChannels[%d]", i))
			if channel.IsString() && channel.StringValue() != "projects/acme/notificationChannels/mail-"+mail {
				t.Errorf("%v gets the mail, not %s", channel, mail)
			}
			c := find(t, all, typeChannel, "mail-"+mail)
			want(t, c, "type=email", "labels.email_address="+mail, "project=acme",
				"userLabels.elasticdl-stack=elasticdl-test")
			if !reaches(all, typeBudget+" budget", typeChannel+" mail-"+mail) ||
				!reaches(all, typeChannel+" mail-"+mail, typeService+" monitoring") {
				t.Errorf("the order of the budget, %s and the API", mail)
			}
		}
		if b.Options.Protect || !reaches(all, typeBudget+" budget", typeService+" billingbudgets") ||
			b.Options.Provider != "pulumi:providers:gcp billing" {
			t.Errorf("options %+v", b.Options)
		}
		// the API refuses a user's credentials without a project whose quota they count against
		p := find(t, all, "pulumi:providers:gcp", "billing")
		want(t, p, "userProjectOverride=true", "billingProject=acme", "project=acme")
		for _, r := range all {
			if r.Type != typeBudget && r.Options.Provider == b.Options.Provider {
				t.Errorf("%s %s counts against the project, too", r.Type, r.Name)
			}
		}
	})
}

// The provider of the budget has the identity of the one of all else.
func TestIdentityOfBudget(t *testing.T) {
	all := first(recordWith(t, configured(), false, map[string]string{"gcp:impersonateServiceAccount": "a@b"}))
	p := find(t, all, "pulumi:providers:gcp", "billing")
	if v := at(t, p, "impersonateServiceAccount"); !v.IsSecret() || v.SecretValue().Element.StringValue() != "a@b" {
		t.Errorf("%v", p.Inputs)
	}
	if keys := p.Inputs.StableKeys(); slices.Contains(keys, "credentials") || len(keys) != 4 {
		t.Errorf("%v", keys)
	}
}
