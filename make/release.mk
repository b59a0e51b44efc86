# What course staff run: archives to hand out and to upload, and the skeleton that goes into them.
# No archive has this file.
.PHONY: release regrade skeleton

## make release       the archives for students and course platforms, in
##                    build/release (handouts/instructors.md); OUT=DIR for another
##                    folder, AT=COMMIT for the tree of a commit, GAPS=2 as below
release: deps
	@$(if $(AT),,$(MAKE) $(JOBS) IMPL=reference suites)
	@$(PYTHON) -B grader/course/release.py --out '$(or $(OUT),$(BUILD)/release)' \
	    $(if $(AT),--at '$(AT)',--suites '$(BUILD)/impl/reference/suite') \
	    $(if $(GAPS),--gaps '$(GAPS)')

## make regrade       grade again EXPORT=PATH, what a platform exported
##                    (Gradescope, Autolab, PrairieLearn, Canvas, Moodle, or a
##                    folder for each student): build/regrade/index.html has the
##                    points before and after, and why; BEFORE=PATH for a CSV of
##                    points, OUT=DIR as above
regrade: deps
	@$(PYTHON) -B grader/course/grade_export.py '$(or $(EXPORT),$(error make regrade \
	    EXPORT=PATH: which export?))' --out '$(or $(OUT),$(BUILD)/regrade)' \
	    --build '$(BUILD)' $(if $(BEFORE),--before '$(BEFORE)')

## make skeleton      write skeleton/ anew from reference/; GAPS=2 OUT=DIR leaves
##                    function bodies and given helpers to be written too, in
##                    another folder
skeleton:
	@$(PYTHON) -B grader/course/skeleton.py write $(if $(GAPS),--gaps '$(GAPS)') \
	    $(if $(OUT),--skeleton '$(OUT)')
