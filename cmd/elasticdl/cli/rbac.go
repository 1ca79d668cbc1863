package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
)

func rbacCommand() *cobra.Command {
	var (
		where   where
		account string
	)
	cmd := &cobra.Command{
		Use:   "rbac [JOB...]",
		Short: "Print the permissions that jobs need, for an administrator to apply",
		Long: "Print the ServiceAccount, Role and RoleBinding that the masters of jobs in a " +
			"namespace need, as YAML.\n" +
			"A job has its own unless it is submitted with --service_account, which is for clusters " +
			"whose users may not create any.\n\n" +
			"With the names of jobs, which need not be there yet, only their Jobs, ConfigMaps and " +
			"Secrets are allowed; without, all of the namespace.\n" +
			"Pods and events are those of the namespace either way: Kubernetes cannot limit by name " +
			"what is created, listed or watched.",
		Example: "  elasticdl rbac test-mnist --namespace=training | kubectl apply -f -\n  " +
			"elasticdl train --namespace=training --job_name=test-mnist --service_account=elasticdl ...",
		Args: cobra.ArbitraryArgs,
		RunE: does(func(cmd *cobra.Command, jobs []string) error {
			for _, name := range jobs {
				if err := job.CheckName(name); err != nil {
					return usage(err)
				}
			}
			namespace := where.at.Namespace
			client, err := where.connect(cmd)
			switch {
			case err == nil:
				namespace = client.Namespace()
			case !errors.Is(err, kube.ErrNoCluster):
				return err
			case namespace == "":
				namespace = "default"
			}
			text, err := kube.Permissions(namespace, account, jobs...)
			if err != nil {
				return usage(err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		}),
	}
	cmd.Flags().StringVar(&account, "service_account", "elasticdl",
		"name of the ServiceAccount, and of the Role and RoleBinding")
	where.clusterFlags(cmd)
	return cmd
}
