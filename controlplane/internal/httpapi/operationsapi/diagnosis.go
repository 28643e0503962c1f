package operationsapi

import (
	"context"

	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
)

func (h *Handlers) GetDiagnosis(ctx context.Context, _ *gen.Call, r gen.GetDiagnosisRequestObject) (gen.GetDiagnosisResponseObject, error) {
	run := h.Diagnosis.Run
	if ledger := r.Params.Ledger; ledger != nil && !*ledger {
		run = h.Diagnosis.RunWithoutLedger
	}

	report := run(ctx)
	return gen.GetDiagnosis200JSONResponse{
		Status: gen.FindingStatus(report.Status()),
		At:     report.At,
		Build:  report.Build,
		Findings: convert.All(report.Findings, func(f *diagnosis.Finding) gen.Finding {
			return gen.Finding{
				Status:  gen.FindingStatus(f.Status),
				Area:    gen.FindingArea(f.Area),
				Check:   f.Check,
				Subject: convert.Optional(f.Subject),
				Detail:  f.Detail,
				Meaning: convert.Optional(f.Meaning),
				Advice:  convert.Optional(f.Advice),
			}
		}),
	}, nil
}
