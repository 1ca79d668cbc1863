package provider

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// projectNumber is the number of the simulated project.
const projectNumber = "123456789012"

// googleFunctions returns the data sources of Google's provider.
func googleFunctions() map[string]func(Props) (Props, error) {
	return map[string]func(Props) (Props, error){
		"gcp:organizations/getProject:getProject": func(a Props) (Props, error) {
			return Props{"id": "projects/" + text(a, "projectId"), "projectId": a["projectId"],
				"number": projectNumber, "name": a["projectId"]}, nil
		},
		"gcp:organizations/getClientConfig:getClientConfig": func(Props) (Props, error) {
			return Props{"id": "projects/" + GoogleProject, "project": GoogleProject}, nil
		},
		"gcp:storage/getBucket:getBucket":                  getGoogleBucket,
		"gcp:kms/getKMSCryptoKey:getKMSCryptoKey":          getGoogleKey,
		"gcp:compute/getSubnetwork:getSubnetwork":          getSubnetwork,
		"gcp:artifactregistry/getRepository:getRepository": getArtifacts,
		"gcp:filestore/getInstance:getInstance":            getFilestore,
		"gcp:serviceaccount/getAccount:getAccount":         getAccount,
		"gcp:projects/getIamPolicy:getIamPolicy":           getGooglePolicy,
	}
}

// makeChannel assigns the name of a channel, whose ID it is.
func makeChannel(_ context.Context, r *Resource, _ Op) (Props, error) {
	return Props{"name": r.ID, "project": GoogleProject}, nil
}

// makeGoogleBudget assigns the name of a budget, and refuses channels that are not there.
func makeGoogleBudget(_ context.Context, r *Resource, op Op) (Props, error) {
	for _, project := range list(r.In, "budgetFilter", "projects") {
		if project != "projects/"+projectNumber {
			return nil, fmt.Errorf("400: %v: Google answers with the number, which is another value", project)
		}
	}
	if op != Preview {
		for _, name := range list(r.In, "allUpdatesRule", "monitoringNotificationChannels") {
			there := false
			for c := range r.cloud.all("gcp:monitoring/notificationChannel:NotificationChannel") {
				there = there || c.ID == name
			}
			if !there {
				return nil, fmt.Errorf("400: notification channel %v does not exist", name)
			}
		}
	}
	return Props{"name": last(r.ID)}, nil
}

// fillGoogleBudget adds the currency of the billing account.
func fillGoogleBudget(r *Resource) {
	fill(r.Is, Props{"amount": Props{"specifiedAmount": Props{"currencyCode": "USD"}},
		"budgetFilter": Props{"creditTypes": []any{}, "services": []any{}, "subaccounts": []any{}}})
}

func makeAmazonBudget(_ context.Context, r *Resource, _ Op) (Props, error) {
	if n := len(list(r.In, "notifications")); n > 5 {
		return nil, fmt.Errorf("CreationLimitExceededException: %d notifications of a budget", n)
	}
	return Props{"arn": "arn:aws:budgets::" + AmazonAccount + ":budget/" + text(r.In, "name"),
		"accountId": AmazonAccount}, nil
}

// fillAmazonBudget adds the kinds of costs and the beginning, and writes the amount as Amazon does.
func fillAmazonBudget(r *Resource) {
	types := Props{"useAmortized": false, "useBlended": false}
	for _, kind := range []string{"Credit", "Discount", "OtherSubscription", "Recurring", "Refund", "Subscription",
		"Support", "Tax", "Upfront"} {
		types["include"+kind] = true
	}
	fill(r.Is, Props{"costTypes": types, "timePeriodStart": "2026-11-01_00:00", "namePrefix": ""})
	if amount := text(r.Is, "limitAmount"); amount != "" && !strings.Contains(amount, ".") {
		r.Is["limitAmount"] = amount + ".0"
	}
}

// sameAmount reports whether two amounts of money are the same: Amazon returns 500.0 for 500.
func sameAmount(_ Props, state, now any) bool {
	s, ok := state.(string)
	n, ok2 := now.(string)
	is, err := strconv.ParseFloat(s, 64)
	will, err2 := strconv.ParseFloat(n, 64)
	return ok && ok2 && err == nil && err2 == nil && is == will
}
