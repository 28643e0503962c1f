package httpapi

import (
	"context"

	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/httpapi/gen"
)

// GetDiagnosis implements gen.StrictServerInterface.
func (s *server) GetDiagnosis(ctx context.Context, _ gen.GetDiagnosisRequestObject) (gen.GetDiagnosisResponseObject, error) {
	report := s.cfg.Diagnosis.Run(ctx)
	return gen.GetDiagnosis200JSONResponse{
		Status: gen.FindingStatus(report.Status()), At: report.At, Build: report.Build,
		Findings: all(report.Findings, func(f *diagnosis.Finding) gen.Finding {
			return gen.Finding{
				Status: gen.FindingStatus(f.Status), Area: gen.FindingArea(f.Area), Check: f.Check, Subject: present(f.Subject),
				Detail: f.Detail, Meaning: present(f.Meaning), Advice: present(f.Advice),
			}
		}),
	}, nil
}
