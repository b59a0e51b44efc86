# The pages of the kit as a site, and its test in a browser. No archive has this file.
.PHONY: site check-site site-planner

SITE            ?= students
SITE_REPOSITORY ?=
ifneq ($(filter-out students instructors,$(SITE)),)
$(error SITE=$(SITE): must be students (the default) or instructors, with the pages for staff)
endif

## make site          handouts, labs, simgpu's pages and interactive figures, as a
##                    site in build/site/html; installs Sphinx from PyPI into
##                    build/ first. SITE=instructors adds pages for staff;
##                    SITE_REPOSITORY=URL links files of the kit to URL/path
site: deps
	@$(MAKE) $(JOBS) IMPL=reference site-planner
	@$(PYTHON) -B grader/course/site_build.py --out '$(BUILD)/site' \
	    --plan $(BUILD)/impl/reference/bin/plan \
	    $(if $(filter instructors,$(SITE)),--staff) \
	    $(if $(SITE_REPOSITORY),--repository $(call quote,$(SITE_REPOSITORY)))

site-planner: $(BUILD)/impl/reference/bin/plan
	@:

## make check-site    the site in Chromium (Debian: chromium, chromium-driver):
##                    links, search, each slider against the planner, keyboard,
##                    contrast, a phone's width
check-site: site
	@$(BUILD)/site/venv/bin/python -B grader/course/site_check.py --site '$(BUILD)/site' \
	    --plan $(BUILD)/impl/reference/bin/plan
