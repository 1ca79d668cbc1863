package gke

import (
	"fmt"
	"strconv"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// maxBudgetName is the greatest length of the name of a budget.
const maxBudgetName = 60

// IdentityKeys lists the settings by which Google's provider chooses an identity. A provider that a
// program creates does not read the stack's file.
var IdentityKeys = []string{"credentials", "accessToken", "impersonateServiceAccount"}

// billing returns a provider whose requests count against the quota of the stack's project: the API
// of budgets refuses others of a user who has logged in with gcloud.
func (p *parts) billing() (pulumi.ProviderResource, error) {
	inputs := pulumi.Map{"project": pulumi.String(p.g.Project), "billingProject": pulumi.String(p.g.Project),
		"userProjectOverride": pulumi.String("true")}
	for key, value := range p.args.Provider {
		inputs[key] = pulumi.ToSecret(pulumi.String(value))
	}
	r := new(pulumi.ProviderResourceState)
	return r, p.ctx.RegisterResource("pulumi:providers:gcp", p.Child("billing"), inputs, r,
		p.options(pulumi.Version(sdkVersion)))
}

// projectNumber looks up the number of the project. Google stores numbers, and a filter with the ID
// of the project would be a difference in every plan.
func (p *parts) projectNumber() (string, error) {
	var project struct {
		Number string `pulumi:"number"`
	}
	err := p.invoke("gcp:organizations/getProject:getProject", map[string]any{"projectId": p.g.Project}, &project)
	if err != nil {
		return "", fmt.Errorf("look up the number of project %s: %w", p.g.Project, err)
	}
	return project.Number, nil
}

// addBudget makes the budget of the settings, of what has the stack's own label in its project, and
// a channel of notifications for each address.
func (p *parts) addBudget() error {
	b := p.s.Budget
	if b == nil {
		return nil
	}
	number, err := p.projectNumber()
	if err != nil {
		return err
	}
	var channels pulumi.StringArray
	for _, address := range b.Mail {
		var channel computed
		if err := p.register("gcp:monitoring/notificationChannel:NotificationChannel", "mail-"+address, pulumi.Map{
			"project":     pulumi.String(p.g.Project),
			"type":        pulumi.String("email"),
			"displayName": pulumi.String(p.s.Name(maxBudgetName) + ": " + address),
			"labels":      pulumi.StringMap{"email_address": pulumi.String(address)},
			"userLabels":  p.labels(),
		}, &channel, p.options(pulumi.DependsOn(p.services))); err != nil {
			return err
		}
		channels = append(channels, channel.Name)
	}
	var thresholds pulumi.Array
	for _, alert := range b.Alerts() {
		basis := "CURRENT_SPEND"
		if alert.Forecast {
			basis = "FORECASTED_SPEND"
		}
		thresholds = append(thresholds, pulumi.Map{"thresholdPercent": pulumi.Float64(float64(alert.Percent) / 100),
			"spendBasis": pulumi.String(basis)})
	}
	api, err := p.service("billingbudgets")
	if err != nil {
		return err
	}
	provider, err := p.billing()
	if err != nil {
		return err
	}
	return p.register("gcp:billing/budget:Budget", "budget", pulumi.Map{
		"billingAccount": pulumi.String(b.BillingAccount),
		"displayName":    pulumi.String(p.s.Name(maxBudgetName)),
		// without currencyCode: in the currency of the billing account
		"amount": pulumi.Map{"specifiedAmount": pulumi.Map{"units": pulumi.String(strconv.Itoa(b.Monthly))}},
		"budgetFilter": pulumi.Map{
			"projects":       pulumi.ToStringArray([]string{"projects/" + number}),
			"labels":         pulumi.StringMap{settings.LabelStack: pulumi.String(p.s.Label())},
			"calendarPeriod": pulumi.String("MONTH"),
		},
		"thresholdRules": thresholds,
		"allUpdatesRule": pulumi.Map{"monitoringNotificationChannels": channels},
	}, new(computed), p.options(pulumi.Provider(provider), pulumi.DependsOn([]pulumi.Resource{api})))
}
