# What course staff run: archives to hand out and to upload, and the skeleton that goes into them.
# No archive has this file.
.PHONY: release grade-all regrade skeleton

## make release       the archives for students and course platforms, in
##                    build/release (handouts/instructors.md); OUT=DIR for another
##                    folder, AT=COMMIT for the tree of a commit, GAPS=2 as below
release: deps
	@$(if $(AT),,$(MAKE) $(JOBS) IMPL=reference suites)
	@$(PYTHON) -B grader/course/release.py --out '$(or $(OUT),$(BUILD)/release)' \
	    $(if $(AT),--at '$(AT)',--suites '$(BUILD)/impl/reference/suite') \
	    $(if $(GAPS),--gaps '$(GAPS)')

## make grade-all     grade all of DIR=PATH, what a platform exported (Gradescope,
##                    Autolab, PrairieLearn, Canvas, Moodle, or a folder for each
##                    student), JOBS=2 at a time, and writes
##                    build/grade-all/points.csv (OUT=DIR as above). After an
##                    interruption run it again: it goes on from there
grade-all: deps
	@$(call grade_export,$(or $(DIR),$(error make grade-all DIR=PATH: which submissions?)),grade-all)

## make regrade       grade EXPORT=PATH again and compare:
##                    build/regrade/index.html has the points before and after,
##                    and why they differ; BEFORE=PATH for a CSV of earlier points
regrade: deps
	@$(call grade_export,$(or $(EXPORT),$(error make regrade EXPORT=PATH: which export?)),regrade) \
	    --compare $(if $(BEFORE),--before '$(BEFORE)')

grade_export = $(PYTHON) -B grader/course/grade_export.py '$(1)' --build '$(BUILD)' \
    --out '$(or $(OUT),$(BUILD)/$(2))' $(if $(filter command,$(origin JOBS)),--jobs '$(JOBS)')

## make skeleton      write skeleton/ from reference/; GAPS=2 OUT=DIR leaves
##                    function bodies and given helpers to be written too, in
##                    another folder
skeleton:
	@$(PYTHON) -B grader/course/skeleton.py write $(if $(GAPS),--gaps '$(GAPS)') \
	    $(if $(OUT),--skeleton '$(OUT)')
