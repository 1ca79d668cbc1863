package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/kube"
)

func rbacCommand() *cobra.Command {
	var (
		where   where
		account string
	)
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the permissions that jobs need, for an administrator to apply",
		Long: "Print the ServiceAccount, Role and RoleBinding that the master of any job in a namespace needs, as YAML.\n" +
			"A job has its own unless it is submitted with --service_account, which is for clusters whose users may not create any.",
		Example: "  elasticdl rbac --namespace=training | kubectl apply -f -\n  elasticdl train --namespace=training --service_account=elasticdl ...",
		Args:    cobra.NoArgs,
		RunE: does(func(cmd *cobra.Command, _ []string) error {
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
			text, err := kube.Permissions(namespace, account)
			if err != nil {
				return usage(err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		}),
	}
	cmd.Flags().StringVar(&account, "service_account", "elasticdl", "name of the ServiceAccount, and of the Role and RoleBinding")
	where.clusterFlags(cmd)
	return cmd
}
