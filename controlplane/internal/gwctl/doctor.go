package gwctl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/gwctl/call"
)

// Direct has the servers to check when no control plane runs.
type Direct struct {
	PostgresURL, NATSURL, MonitorURL string
	Replicas                         int
}

// finding and diagnosisReport are the schemas Finding and Diagnosis of the API.
type finding struct {
	Status  diagnosis.Status `json:"status"`
	Area    string           `json:"area"`
	Check   string           `json:"check"`
	Subject string           `json:"subject,omitempty"`
	Detail  string           `json:"detail"`
	Meaning string           `json:"meaning,omitempty"`
	Advice  string           `json:"advice,omitempty"`
}

type diagnosisReport struct {
	Status   diagnosis.Status `json:"status"`
	At       time.Time        `json:"at"`
	Build    string           `json:"build"`
	Findings []finding        `json:"findings"`
}

// all returns the findings for printing.
func (r *diagnosisReport) all() []diagnosis.Finding {
	all := make([]diagnosis.Finding, len(r.Findings))
	for i, f := range r.Findings {
		all[i] = diagnosis.Finding{
			Area:    f.Area,
			Check:   f.Check,
			Subject: f.Subject,
			Status:  f.Status,
			Detail:  f.Detail,
			Meaning: f.Meaning,
			Advice:  f.Advice,
		}
	}
	return all
}

// clockLimit bounds the difference between the clocks of this machine and of the server.
const clockLimit = time.Minute

func (t *tool) doctorCommand() *cobra.Command {
	var direct Direct
	var all, strict bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check all parts of the system and give advice on problems",
		Args:  cobra.NoArgs,
		Long: "Check database, NATS, proxies, secrets and ledger. Every problem is printed with its consequence and advice.\n" +
			"The exit code is 1 if there is a failure, with --strict also if there is a warning.\n\n" +
			"If no control plane runs, --postgres-url and --nats-url check the servers directly.",
		Example: "  gwctl doctor",
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := t.diagnose(cmd.Context(), direct)
			if err != nil {
				return err
			}
			if t.isMachine() {
				err = t.show(report)
			} else {
				diagnosis.Print(t.cfg.Out, report.all(), all)
			}
			if err == nil && (report.Status == diagnosis.Failure || strict && report.Status == diagnosis.Warning) {
				return &exitError{code: ExitFailure}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show the checks that found no problem, too")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 on warnings, too")
	cmd.Flags().StringVar(&direct.PostgresURL, "postgres-url", "", "check this database directly, without a control plane")
	cmd.Flags().StringVar(&direct.NATSURL, "nats-url", "", "check this NATS server directly, without a control plane")
	cmd.Flags().
		StringVar(&direct.MonitorURL, "nats-monitor-url", "", "monitoring addresses of all NATS servers, separated by commas, to "+
			"check their sync settings")
	cmd.Flags().IntVar(&direct.Replicas, "nats-replicas", 3, "expected number of replicas of each stream, with --nats-url")

	return cmd
}

// diagnose gets the report of the server, or checks the servers itself.
func (t *tool) diagnose(ctx context.Context, direct Direct) (*diagnosisReport, error) {
	if direct.PostgresURL == "" && direct.NATSURL == "" {
		return t.getDiagnosis(ctx)
	}
	if t.cfg.DiagnoseFunc == nil {
		return nil, usagef("this build cannot check servers directly")
	}

	found := t.cfg.DiagnoseFunc(ctx, direct)
	report := &diagnosisReport{
		Status:   found.Status(),
		At:       found.At,
		Build:    found.Build,
		Findings: []finding{},
	}

	for _, f := range found.Findings {
		report.Findings = append(report.Findings, finding{f.Status, f.Area, f.Check, f.Subject, f.Detail, f.Meaning, f.Advice})
	}

	return report, nil
}

func (t *tool) getDiagnosis(ctx context.Context) (*diagnosisReport, error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}

	answer, err := client.Do(
		ctx,
		call.Request{Method: http.MethodGet, Path: "/admin/v1/diagnosis", Header: http.Header{"Accept": {mediaJSON}}},
	)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := readResponse(answer.Body)
	if err != nil {
		return nil, err
	}

	report := &diagnosisReport{}
	if err := json.Unmarshal(text, report); err != nil {
		return nil, fmt.Errorf("decode the response: %w", err)
	}

	if away := time.Since(report.At); away.Abs() > clockLimit {
		report.Findings = append(report.Findings, finding{
			Status:  diagnosis.Warning,
			Area:    "here",
			Check:   "clock",
			Detail:  fmt.Sprintf("the clocks of this machine and the control plane differ by %v", away.Round(time.Second)),
			Meaning: "Times in commands and output are wrong by that much.",
			Advice:  "Synchronize the clocks of this machine and the control plane with NTP.",
		})
		if report.Status == diagnosis.OK {
			report.Status = diagnosis.Warning
		}
	}

	return report, nil
}
